//! What `libibverbs` looks like from Rust: the parts of its C interface that this provider uses. The interface is fixed
//! since 2006 (`IBVERBS_1.1`); a test compares every size and offset with the system's header.
//!
//! Names are those of C without the prefix `ibv_`, so that manuals apply.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// An array of 128 bits that names a port: an IPv6 address on RoCE v2, possibly IPv4-mapped.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GidEntry {
    pub gid: Gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

pub(crate) const GID_TYPE_ROCE_V1: u32 = 1;
pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;

/// Opaque.
#[repr(C)]
pub(crate) struct Device {
    _opaque: [u8; 0],
}

/// The data path goes through these; the control path is functions of the library.
#[repr(C)]
pub(crate) struct ContextOps {
    _before_poll_cq: [*const c_void; 11],
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    _before_post_send: [*const c_void; 12],
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    _after_post_recv: [*const c_void; 5],
}

#[repr(C)]
pub(crate) struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    // A mutex and more follow.
}

#[repr(C)]
pub(crate) struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

#[repr(C)]
pub(crate) struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub(crate) struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
pub(crate) struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    // A mutex and more follow.
}

#[repr(C)]
pub(crate) struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
    // The state, a mutex and more follow.
}

#[repr(C)]
pub(crate) struct Ah {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

pub(crate) const ATOMIC_HCA: c_uint = 1;
pub(crate) const ATOMIC_GLOB: c_uint = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortAttr {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

pub(crate) const PORT_ACTIVE: c_uint = 4;
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub(crate) struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

pub(crate) const QPT_RC: c_uint = 2;
pub(crate) const QPT_UC: c_uint = 3;
pub(crate) const QPT_UD: c_uint = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GlobalRoute {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QpAttr {
    pub qp_state: c_uint,
    pub cur_qp_state: c_uint,
    pub path_mtu: c_uint,
    pub path_mig_state: c_uint,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

pub(crate) const QPS_INIT: c_uint = 1;
pub(crate) const QPS_RTR: c_uint = 2;
pub(crate) const QPS_RTS: c_uint = 3;
pub(crate) const QPS_ERR: c_uint = 6;

pub(crate) const QP_STATE: c_int = 1;
pub(crate) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(crate) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(crate) const QP_PORT: c_int = 1 << 5;
pub(crate) const QP_QKEY: c_int = 1 << 6;
pub(crate) const QP_AV: c_int = 1 << 7;
pub(crate) const QP_PATH_MTU: c_int = 1 << 8;
pub(crate) const QP_TIMEOUT: c_int = 1 << 9;
pub(crate) const QP_RETRY_CNT: c_int = 1 << 10;
pub(crate) const QP_RNR_RETRY: c_int = 1 << 11;
pub(crate) const QP_RQ_PSN: c_int = 1 << 12;
pub(crate) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(crate) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(crate) const QP_SQ_PSN: c_int = 1 << 16;
pub(crate) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(crate) const QP_DEST_QPN: c_int = 1 << 20;

pub(crate) const ACCESS_LOCAL_WRITE: c_uint = 1;
pub(crate) const ACCESS_REMOTE_WRITE: c_uint = 2;
pub(crate) const ACCESS_REMOTE_READ: c_uint = 4;
pub(crate) const ACCESS_REMOTE_ATOMIC: c_uint = 8;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The operands of a verb: one of three C structures that share their bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Operands {
    pub rdma: Rdma,
    pub atomic: Atomic,
    pub ud: Ud,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Ud {
    pub ah: *mut Ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// In network byte order.
    pub imm_data: u32,
    pub wr: Operands,
    _qp_type: u64,
    _bind_mw: [u64; 6],
}

impl SendWr {
    pub(crate) const EMPTY: Self = Self {
        wr_id: 0,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        imm_data: 0,
        wr: Operands { atomic: Atomic { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 } },
        _qp_type: 0,
        _bind_mw: [0; 6],
    };
}

pub(crate) const WR_RDMA_WRITE: c_uint = 0;
pub(crate) const WR_RDMA_WRITE_WITH_IMM: c_uint = 1;
pub(crate) const WR_SEND: c_uint = 2;
pub(crate) const WR_SEND_WITH_IMM: c_uint = 3;
pub(crate) const WR_RDMA_READ: c_uint = 4;
pub(crate) const WR_ATOMIC_CMP_AND_SWP: c_uint = 5;
pub(crate) const WR_ATOMIC_FETCH_AND_ADD: c_uint = 6;

pub(crate) const SEND_SIGNALED: c_uint = 2;
pub(crate) const SEND_INLINE: c_uint = 8;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In network byte order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub(crate) const WC_SUCCESS: c_uint = 0;
pub(crate) const WC_LOC_LEN_ERR: c_uint = 1;
pub(crate) const WC_LOC_QP_OP_ERR: c_uint = 2;
pub(crate) const WC_WR_FLUSH_ERR: c_uint = 5;
pub(crate) const WC_REM_INV_REQ_ERR: c_uint = 9;
pub(crate) const WC_REM_ACCESS_ERR: c_uint = 10;
pub(crate) const WC_REM_OP_ERR: c_uint = 11;
pub(crate) const WC_RETRY_EXC_ERR: c_uint = 12;
pub(crate) const WC_RNR_RETRY_EXC_ERR: c_uint = 13;

/// The opcode of a RECV that a WRITE with immediate consumed.
pub(crate) const WC_RECV_RDMA_WITH_IMM: c_uint = 129;
pub(crate) const WC_WITH_IMM: c_uint = 2;

/// Something that happened to an object or a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AsyncEvent {
    /// A pointer to the queue pair or the completion queue, or the number of the port.
    pub element: usize,
    pub event_type: c_uint,
}

pub(crate) const EVENT_CQ_ERR: c_uint = 0;
pub(crate) const EVENT_QP_FATAL: c_uint = 1;
pub(crate) const EVENT_QP_REQ_ERR: c_uint = 2;
pub(crate) const EVENT_QP_ACCESS_ERR: c_uint = 3;
pub(crate) const EVENT_DEVICE_FATAL: c_uint = 8;
pub(crate) const EVENT_PORT_ERR: c_uint = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    /// Every structure as C has it: what to ask C, and what Rust says.
    macro_rules! facts {
        ($($c:literal $rust:ident $whole:literal { $($field:ident = $c_field:literal),* })*) => {{
            let mut facts = Vec::new();
            $(
                if $whole {
                    facts.push((concat!("sizeof(struct ", $c, ")").to_string(), size_of::<$rust>()));
                }
                $(facts.push((concat!("offsetof(struct ", $c, ", ", $c_field, ")").to_string(), offset_of!($rust, $field)));)*
            )*
            facts
        }};
    }

    /// Asks the C compiler for the same numbers. Needs the header, in Debian's `libibverbs-dev`.
    #[test]
    fn everything_lies_where_the_header_has_it() {
        let mut facts = facts! {
            "ibv_gid_entry" GidEntry true { gid_index = "gid_index", gid_type = "gid_type" }
            "ibv_context_ops" ContextOps true { poll_cq = "poll_cq", req_notify_cq = "req_notify_cq",
                post_send = "post_send", post_recv = "post_recv" }
            "ibv_context" Context false { ops = "ops", cmd_fd = "cmd_fd", async_fd = "async_fd",
                num_comp_vectors = "num_comp_vectors" }
            "ibv_pd" Pd true { handle = "handle" }
            "ibv_mr" Mr true { addr = "addr", length = "length", lkey = "lkey", rkey = "rkey" }
            "ibv_comp_channel" CompChannel true { fd = "fd" }
            "ibv_cq" Cq false { channel = "channel", cqe = "cqe" }
            "ibv_qp" Qp false { pd = "pd", handle = "handle", qp_num = "qp_num" }
            "ibv_ah" Ah true { handle = "handle" }
            "ibv_device_attr" DeviceAttr true { node_guid = "node_guid", max_qp = "max_qp", max_qp_wr = "max_qp_wr",
                max_cqe = "max_cqe", max_qp_rd_atom = "max_qp_rd_atom", max_qp_init_rd_atom = "max_qp_init_rd_atom",
                atomic_cap = "atomic_cap", phys_port_cnt = "phys_port_cnt" }
            "ibv_port_attr" PortAttr true { active_mtu = "active_mtu", gid_tbl_len = "gid_tbl_len",
                max_msg_sz = "max_msg_sz", lid = "lid", link_layer = "link_layer" }
            "ibv_qp_cap" QpCap true { max_inline_data = "max_inline_data" }
            "ibv_qp_init_attr" QpInitAttr true { cap = "cap", qp_type = "qp_type", sq_sig_all = "sq_sig_all" }
            "ibv_global_route" GlobalRoute true { sgid_index = "sgid_index", hop_limit = "hop_limit" }
            "ibv_ah_attr" AhAttr true { dlid = "dlid", is_global = "is_global", port_num = "port_num" }
            "ibv_qp_attr" QpAttr true { qkey = "qkey", dest_qp_num = "dest_qp_num", qp_access_flags = "qp_access_flags",
                ah_attr = "ah_attr", max_rd_atomic = "max_rd_atomic", port_num = "port_num", timeout = "timeout",
                retry_cnt = "retry_cnt", rnr_retry = "rnr_retry" }
            "ibv_sge" Sge true { length = "length", lkey = "lkey" }
            "ibv_send_wr" SendWr true { sg_list = "sg_list", num_sge = "num_sge", opcode = "opcode",
                send_flags = "send_flags", imm_data = "imm_data", wr = "wr" }
            "ibv_recv_wr" RecvWr true { sg_list = "sg_list", num_sge = "num_sge" }
            "ibv_async_event" AsyncEvent true { element = "element", event_type = "event_type" }
            "ibv_wc" Wc true { status = "status", opcode = "opcode", byte_len = "byte_len", imm_data = "imm_data",
                qp_num = "qp_num", src_qp = "src_qp", wc_flags = "wc_flags" }
        };
        for (field, offset) in [
            ("wr.rdma.remote_addr", offset_of!(SendWr, wr) + offset_of!(Rdma, remote_addr)),
            ("wr.rdma.rkey", offset_of!(SendWr, wr) + offset_of!(Rdma, rkey)),
            ("wr.atomic.compare_add", offset_of!(SendWr, wr) + offset_of!(Atomic, compare_add)),
            ("wr.atomic.swap", offset_of!(SendWr, wr) + offset_of!(Atomic, swap)),
            ("wr.atomic.rkey", offset_of!(SendWr, wr) + offset_of!(Atomic, rkey)),
            ("wr.ud.ah", offset_of!(SendWr, wr) + offset_of!(Ud, ah)),
            ("wr.ud.remote_qpn", offset_of!(SendWr, wr) + offset_of!(Ud, remote_qpn)),
            ("wr.ud.remote_qkey", offset_of!(SendWr, wr) + offset_of!(Ud, remote_qkey)),
        ] {
            facts.push((format!("offsetof(struct ibv_send_wr, {field})"), offset));
        }
        for (name, value) in [
            ("IBV_WC_RECV_RDMA_WITH_IMM", WC_RECV_RDMA_WITH_IMM as usize),
            ("IBV_WC_RNR_RETRY_EXC_ERR", WC_RNR_RETRY_EXC_ERR as usize),
            ("IBV_EVENT_CQ_ERR", EVENT_CQ_ERR as usize),
            ("IBV_EVENT_QP_FATAL", EVENT_QP_FATAL as usize),
            ("IBV_EVENT_QP_REQ_ERR", EVENT_QP_REQ_ERR as usize),
            ("IBV_EVENT_QP_ACCESS_ERR", EVENT_QP_ACCESS_ERR as usize),
            ("IBV_EVENT_DEVICE_FATAL", EVENT_DEVICE_FATAL as usize),
            ("IBV_EVENT_PORT_ERR", EVENT_PORT_ERR as usize),
            ("IBV_QPS_ERR", QPS_ERR as usize),
            ("IBV_QP_DEST_QPN", QP_DEST_QPN as usize),
            ("IBV_QP_MAX_DEST_RD_ATOMIC", QP_MAX_DEST_RD_ATOMIC as usize),
            ("IBV_SEND_INLINE", SEND_INLINE as usize),
            ("IBV_WR_ATOMIC_FETCH_AND_ADD", WR_ATOMIC_FETCH_AND_ADD as usize),
            ("IBV_LINK_LAYER_ETHERNET", LINK_LAYER_ETHERNET as usize),
        ] {
            facts.push((name.into(), value));
        }
        let asked: String =
            facts.iter().map(|(what, _)| format!("printf(\"%zu\\n\", (size_t)({what}));\n")).collect();
        let place = std::env::temp_dir().join(format!("locus-layout-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (source, program) = (place.join("layout.c"), place.join("layout"));
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {{\n{asked}}}\n"
        );
        std::fs::write(&source, text).unwrap();
        let built = Command::new("cc").arg(&source).arg("-o").arg(&program).output().expect("a C compiler");
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        assert!(built.status.success(), "infiniband/verbs.h is in Debian's libibverbs-dev: {said}");
        let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
        let theirs: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(theirs.len(), facts.len());
        for ((what, ours), theirs) in facts.iter().zip(theirs) {
            assert_eq!(*ours, theirs, "{what}");
        }
    }
}
