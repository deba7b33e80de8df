//! `libibverbs`, loaded when it is first used: a machine without it runs everything else.

use super::ffi::{
    Ah, AhAttr, AsyncEvent, CompChannel, Context, Cq, Device, DeviceAttr, GidEntry, Mr, Pd, PortAttr, Qp,
    QpAttr, QpInitAttr,
};
use crate::FabricError;
use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

/// Makes the table of the functions that are looked up by name.
macro_rules! library {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        pub(crate) struct Library {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn load() -> Result<Self, String> {
                // SAFETY: the library's constructors only set up its own tables.
                let library = unsafe { libloading::Library::new("libibverbs.so.1") };
                let library = library.map_err(|error| error.to_string())?;
                let functions = Self {
                    $($name: {
                        // SAFETY: the type is that of the C function of this name.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>($symbol) };
                        *symbol.map_err(|error| error.to_string())?
                    },)*
                };
                // Kept for good: what it gave out may live as long as the process.
                std::mem::forget(library);
                Ok(functions)
            }
        }
    };
}

library! {
    get_device_list = b"ibv_get_device_list": fn(*mut c_int) -> *mut *mut Device;
    free_device_list = b"ibv_free_device_list": fn(*mut *mut Device);
    get_device_name = b"ibv_get_device_name": fn(*mut Device) -> *const c_char;
    open_device = b"ibv_open_device": fn(*mut Device) -> *mut Context;
    close_device = b"ibv_close_device": fn(*mut Context) -> c_int;
    query_device = b"ibv_query_device": fn(*mut Context, *mut DeviceAttr) -> c_int;
    query_port = b"ibv_query_port": fn(*mut Context, u8, *mut PortAttr) -> c_int;
    /// Entries, how many, flags, size of an entry; gives how many there are, or a negative error.
    query_gid_table = b"_ibv_query_gid_table": fn(*mut Context, *mut GidEntry, usize, u32, usize) -> isize;
    alloc_pd = b"ibv_alloc_pd": fn(*mut Context) -> *mut Pd;
    dealloc_pd = b"ibv_dealloc_pd": fn(*mut Pd) -> c_int;
    /// Memory, its length, the address by which requests name its first byte, access rights.
    reg_mr_iova = b"ibv_reg_mr_iova": fn(*mut Pd, *mut c_void, usize, u64, c_int) -> *mut Mr;
    dereg_mr = b"ibv_dereg_mr": fn(*mut Mr) -> c_int;
    create_comp_channel = b"ibv_create_comp_channel": fn(*mut Context) -> *mut CompChannel;
    destroy_comp_channel = b"ibv_destroy_comp_channel": fn(*mut CompChannel) -> c_int;
    create_cq = b"ibv_create_cq": fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq = b"ibv_destroy_cq": fn(*mut Cq) -> c_int;
    get_cq_event = b"ibv_get_cq_event": fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events = b"ibv_ack_cq_events": fn(*mut Cq, c_uint);
    create_qp = b"ibv_create_qp": fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp = b"ibv_modify_qp": fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp = b"ibv_destroy_qp": fn(*mut Qp) -> c_int;
    get_async_event = b"ibv_get_async_event": fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event = b"ibv_ack_async_event": fn(*mut AsyncEvent);
    create_ah = b"ibv_create_ah": fn(*mut Pd, *mut AhAttr) -> *mut Ah;
    destroy_ah = b"ibv_destroy_ah": fn(*mut Ah) -> c_int;
}

/// The library, or why it is not there and what to do.
pub(crate) fn library() -> Result<&'static Library, FabricError> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).as_ref().map_err(|why| FabricError::NoDevice {
        what: "RDMA needs libibverbs, which cannot be loaded".into(),
        reason: why.clone(),
        advice: "install it: apt-get install libibverbs1 ibverbs-providers, or rdma-core elsewhere".into(),
    })
}
