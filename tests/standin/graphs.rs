//! The driver's functions for graphs, as `cuda.h` declares them.

use crate::exports::{KernelNode, code, give, launch_of};
use crate::state::{Code, Graph, INVALID_HANDLE, INVALID_VALUE, Queued, lock};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
const COOPERATIVE: i32 = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphKernelNodeSetAttribute(node: u64, attribute: i32, value: *const i32) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if attribute != COOPERATIVE {
        return INVALID_VALUE;
    }
    // SAFETY: as the caller promises.
    let value = unsafe { value.read() };
    let found = s.graphs.values_mut().find_map(|g| g.nodes.get_mut(&node));
    code(found.map(|n| n.1.cooperative = value != 0).ok_or(INVALID_HANDLE))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphCreate(graph: *mut u64, flags: u32) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    if flags != 0 || s.settings.no_graphs {
        return INVALID_VALUE;
    }
    let name = s.name();
    s.graphs.insert(name, Graph::default());
    s.graphs_made += 1;
    // SAFETY: as the caller promises.
    code(unsafe { give(graph, name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphAddKernelNode(
    node: *mut u64,
    graph: u64,
    before: *const u64,
    count: usize,
    params: *const KernelNode,
) -> Code {
    let mut s = lock();
    // SAFETY: as the caller promises.
    let (launch, before) = unsafe {
        let before = if count == 0 { Vec::new() } else { std::slice::from_raw_parts(before, count).to_vec() };
        (params.as_ref().ok_or(INVALID_VALUE).and_then(|p| launch_of(&s, p)), before)
    };
    let name = s.name();
    let Some(graph) = s.graphs.get_mut(&graph) else { return INVALID_HANDLE };
    if before.iter().any(|b| !graph.nodes.contains_key(b)) {
        return INVALID_VALUE;
    }
    code(launch.and_then(|launch| {
        graph.nodes.insert(name, (before, launch));
        // SAFETY: as the caller promises.
        unsafe { give(node, name) }
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphInstantiateWithFlags(executable: *mut u64, graph: u64, flags: u64) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    let Some(copy) = s.graphs.get(&graph).filter(|_| flags == 0).cloned() else { return INVALID_HANDLE };
    let name = s.name();
    s.executables.insert(name, copy);
    // SAFETY: as the caller promises.
    code(unsafe { give(executable, name) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphExecKernelNodeSetParams(executable: u64, node: u64, params: *const KernelNode) -> Code {
    let mut s = lock();
    // SAFETY: as the caller promises.
    let launch = unsafe { params.as_ref().ok_or(INVALID_VALUE).and_then(|p| launch_of(&s, p)) };
    // A node that has left its graph cannot be named any more.
    if !s.graphs.values().any(|g| g.nodes.contains_key(&node)) {
        return INVALID_HANDLE;
    }
    s.updates += 1;
    let found = s.executables.get_mut(&executable).and_then(|e| e.nodes.get_mut(&node));
    // What was set of a node stays.
    let replace = |(node, launch): (&mut (Vec<u64>, Queued), Queued)| {
        node.1 = Queued { cooperative: node.1.cooperative, ..launch };
    };
    code(launch.and_then(|launch| found.map(|node| replace((node, launch))).ok_or(INVALID_HANDLE)))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(executable: u64, stream: u64) -> Code {
    let mut s = lock();
    if let Err(code) = s.ready() {
        return code;
    }
    let Some(graph) = s.executables.get(&executable) else { return INVALID_HANDLE };
    let launches = graph.in_some_order();
    s.graph_launches += 1;
    code(s.launch(stream, launches))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(executable: u64) -> Code {
    if lock().executables.remove(&executable).is_none() { INVALID_HANDLE } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> Code {
    if lock().graphs.remove(&graph).is_none() { INVALID_HANDLE } else { 0 }
}
