# ruff: noqa: N802, N803
"""cuda.bindings.runtime of CUDA 13 over the fake machine: NVIDIA's names, argument order and tuples."""

from fake_gpu import argument, process
from fake_gpu.calls import presented
from fake_gpu.enums import *  # noqa: F403
from fake_gpu.enums import cudaDeviceAttr, cudaMemcpyKind, cudaMemcpySrcAccessOrder, cudaMemoryType
from fake_gpu.errors import Failed, cudaError_t, described
from fake_gpu.structs import *  # noqa: F403
from fake_gpu.structs import (
    cudaEvent_t,
    cudaIpcMemHandle_t,
    cudaMemcpyAttributes,
    cudaPointerAttributes,
    cudaStream_t,
)
from fake_gpu.work import Fill, Piece

VERSION = 13050


def _here() -> process.Process:
    found = process.current()
    if found is None:
        raise Failed(cudaError_t.cudaErrorInsufficientDriver)
    return found


# devices


@presented(1, on_current_device=False)
def cudaGetDeviceCount():
    return len(_here().devices)


@presented(on_current_device=False)
def cudaSetDevice(device):
    found = _here()
    chosen = found.device_at(argument.integer(device))
    chosen.check()
    found.thread.device = chosen.ordinal


@presented(1, on_current_device=False)
def cudaGetDevice():
    return _here().device.ordinal


@presented(1, on_current_device=False)
def cudaGetDeviceProperties(device):
    chosen = _here().device_at(argument.integer(device))
    chosen.check()
    return chosen.properties()


@presented(1, on_current_device=False)
def cudaDeviceGetAttribute(attr, device):
    chosen = _here().device_at(argument.integer(device))
    chosen.check()
    return chosen.attribute(argument.member(cudaDeviceAttr, attr))


@presented(1, on_current_device=False)
def cudaDeviceGetPCIBusId(length, device):
    chosen = _here().device_at(argument.integer(device))
    chosen.check()
    return chosen.gpu.pci_bus_id.encode()[: argument.integer(length) - 1]


@presented(1, on_current_device=False)
def cudaDeviceGetByPCIBusId(pciBusId):
    if not isinstance(pciBusId, bytes):
        raise TypeError(f"expected bytes, {type(pciBusId).__name__} found")
    for device in _here().devices:
        if device.gpu.pci_bus_id.lower() == pciBusId.decode().lower():
            return device.ordinal
    raise Failed(cudaError_t.cudaErrorInvalidDevice)


@presented(2)
def cudaDeviceGetStreamPriorityRange():
    return 0, -5


@presented()
def cudaDeviceSynchronize():
    found = _here()
    found.streams.synchronize(found.device)


@presented(1, on_current_device=False)
def cudaDeviceCanAccessPeer(device, peerDevice):
    found = _here()
    pair = [found.device_at(argument.integer(number)) for number in (device, peerDevice)]
    return int(pair[0] is not pair[1])


@presented()
def cudaDeviceEnablePeerAccess(peerDevice, flags):
    found = _here()
    peer = found.device_at(argument.integer(peerDevice))
    if peer is found.device:
        raise Failed(cudaError_t.cudaErrorInvalidDevice)
    if argument.integer(flags):
        raise Failed(cudaError_t.cudaErrorInvalidValue)
    if peer.ordinal in found.device.peers:
        raise Failed(cudaError_t.cudaErrorPeerAccessAlreadyEnabled)
    found.device.peers.add(peer.ordinal)


# memory


@presented(2)
def cudaMemGetInfo():
    found = _here()
    return found.memory.info(found.device)


@presented(1)
def cudaMalloc(size):
    found = _here()
    return found.memory.allocate(found.device, argument.size_t(size))


@presented()
def cudaFree(devPtr):
    _here().memory.free(argument.address(devPtr), "cudaFree")


@presented()
def cudaMemset(devPtr, value, count):
    _fill("cudaMemset", devPtr, value, count, 0)


@presented()
def cudaMemsetAsync(devPtr, value, count, stream):
    _fill("cudaMemsetAsync", devPtr, value, count, stream)


def _fill(call, pointer, value, count, stream):
    found = _here()
    start, size = argument.address(pointer), argument.size_t(count)
    found.space.require_device(start, size, call)
    fill = Fill(found.space, call, start, argument.integer(value) & 0xFF, size)
    found.streams.submit(argument.handle(stream), found.device, fill)


@presented(1)
def cudaPointerGetAttributes(ptr):
    address = argument.address(ptr)
    region = _here().space.at(address)
    if region is None:
        return cudaPointerAttributes(hostPointer=address)
    if region.device is None:
        return cudaPointerAttributes(cudaMemoryType.cudaMemoryTypeHost, _here().device.ordinal, address, address)
    return cudaPointerAttributes(cudaMemoryType.cudaMemoryTypeDevice, region.device.ordinal, address, 0)


@presented()
def cudaHostRegister(ptr, size, flags):
    start, nbytes = argument.address(ptr), argument.size_t(size)
    _here().host.register(start, nbytes, argument.integer(flags), "cudaHostRegister")


@presented()
def cudaHostUnregister(ptr):
    _here().host.unregister(argument.address(ptr), "cudaHostUnregister")


@presented(1)
def cudaHostGetFlags(pHost):
    return _here().host.flags(argument.address(pHost))


# copies


@presented()
def cudaMemcpy(dst, src, count, kind):
    found = _here()
    piece = Piece(argument.address(dst), argument.address(src), argument.size_t(count))
    if piece.width == 0:
        return
    copy, unwaited = found.copies.synchronous("cudaMemcpy", argument.member(cudaMemcpyKind, kind), piece)
    stream = found.streams.submit(0, found.device, copy)
    if not unwaited:
        stream.wait()


@presented()
def cudaMemcpyAsync(dst, src, count, kind, stream):
    piece = Piece(argument.address(dst), argument.address(src), argument.size_t(count))
    _copy("cudaMemcpyAsync", argument.member(cudaMemcpyKind, kind), [piece], stream)


@presented()
def cudaMemcpy2DAsync(dst, dpitch, src, spitch, width, height, kind, stream):
    sizes = [argument.size_t(size) for size in (width, height, dpitch, spitch)]
    piece = Piece(argument.address(dst), argument.address(src), *sizes)
    if piece.width > min(piece.dst_pitch, piece.src_pitch):
        raise Failed(cudaError_t.cudaErrorInvalidPitchValue)
    _copy("cudaMemcpy2DAsync", argument.member(cudaMemcpyKind, kind), [piece], stream)


@presented()
def cudaMemcpyPeerAsync(dst, dstDevice, src, srcDevice, count, stream):
    found = _here()
    target, source = (found.device_at(argument.integer(number)).ordinal for number in (dstDevice, srcDevice))
    piece = Piece(argument.address(dst), argument.address(src), argument.size_t(count))
    if piece.width:
        copy = found.copies.on_devices("cudaMemcpyPeerAsync", piece, target, source)
        found.streams.submit(argument.handle(stream), found.device, copy)


@presented()
def cudaMemcpyBatchAsync(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, stream):
    number, attributes = argument.size_t(count), argument.size_t(numAttrs)
    targets = argument.batch(dsts, number, "dsts")
    sources = argument.batch(srcs, number, "srcs")
    widths = argument.integers(sizes, number, "sizes")
    orders = argument.batch(attrs, attributes, "attrs")
    firsts = list(argument.integers(attrsIdxs, attributes, "attrsIdxs")[:attributes])
    if not all(isinstance(order, cudaMemcpyAttributes) for order in orders):
        raise TypeError("Argument 'attrs' is not a list of cudaMemcpyAttributes")
    ordered = firsts == sorted(set(firsts)) and firsts[:1] == [0] and firsts[-1] < number
    invalid = cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderInvalid
    if not (number and ordered) or any(order.srcAccessOrder == invalid for order in orders[:attributes]):
        raise _here().space.wrong("cudaMemcpyBatchAsync: no copies, or attributes that do not cover them in order")
    during = cudaMemcpySrcAccessOrder.cudaMemcpySrcAccessOrderDuringApiCall
    if any(order.srcAccessOrder == during for order in orders[:attributes]):
        raise _here().space.wrong("cudaMemcpyBatchAsync: the fake cannot read sources during the call")
    if argument.handle(stream) == 0:
        raise _here().space.wrong("cudaMemcpyBatchAsync: the default stream takes no batches")
    pieces = [
        Piece(argument.address(dst), argument.address(src), width)
        for dst, src, width in zip(targets[:number], sources[:number], widths[:number], strict=True)
    ]
    _copy("cudaMemcpyBatchAsync", cudaMemcpyKind.cudaMemcpyDefault, pieces, stream)


def _copy(call, kind, pieces, stream):
    found = _here()
    pieces = [piece for piece in pieces if piece.width and piece.height]
    if pieces:
        found.streams.submit(argument.handle(stream), found.device, found.copies.asynchronous(call, kind, pieces))


# streams


@presented(1)
def cudaStreamCreateWithFlags(flags):
    return _stream(argument.integer(flags))


@presented(1)
def cudaStreamCreateWithPriority(flags, priority):
    argument.integer(priority)
    return _stream(argument.integer(flags))


def _stream(flags):
    found = _here()
    if flags not in (0, 1):
        raise Failed(cudaError_t.cudaErrorInvalidValue)
    return cudaStream_t(found.streams.create(found.device).handle)


@presented(on_current_device=False)
def cudaStreamDestroy(stream):
    found = _here()
    found.streams.destroy(argument.handle(stream), found.device, "cudaStreamDestroy")


@presented(on_current_device=False)
def cudaStreamSynchronize(stream):
    found = _here()
    found.streams.find(argument.handle(stream), found.device, "cudaStreamSynchronize").wait()


@presented(on_current_device=False)
def cudaStreamQuery(stream):
    found = _here()
    queried = found.streams.find(argument.handle(stream), found.device, "cudaStreamQuery")
    queried.device.check()
    if not queried.idle:
        raise Failed(cudaError_t.cudaErrorNotReady)


@presented(on_current_device=False)
def cudaStreamWaitEvent(stream, event, flags):
    found = _here()
    argument.integer(flags)
    found.events.hold(argument.handle(event), argument.handle(stream), found.device, "cudaStreamWaitEvent")


# events


@presented(1)
def cudaEventCreateWithFlags(flags):
    found = _here()
    return cudaEvent_t(found.events.create(found.device, argument.integer(flags)))


@presented()
def cudaEventRecord(event, stream):
    found = _here()
    found.events.record(argument.handle(event), argument.handle(stream), found.device, "cudaEventRecord")


@presented(on_current_device=False)
def cudaEventSynchronize(event):
    _here().events.wait(argument.handle(event), "cudaEventSynchronize")


@presented(on_current_device=False)
def cudaEventQuery(event):
    if not _here().events.reached(argument.handle(event), "cudaEventQuery"):
        raise Failed(cudaError_t.cudaErrorNotReady)


@presented(on_current_device=False)
def cudaEventDestroy(event):
    _here().events.destroy(argument.handle(event), "cudaEventDestroy")


@presented(1, on_current_device=False)
def cudaEventElapsedTime(start, end):
    return _here().events.elapsed_ms(argument.handle(start), argument.handle(end), "cudaEventElapsedTime")


# memory of other processes


@presented(1)
def cudaIpcGetMemHandle(devPtr):
    return _here().ipc.export(argument.address(devPtr), "cudaIpcGetMemHandle")


@presented(1)
def cudaIpcOpenMemHandle(handle, flags):
    if not isinstance(handle, cudaIpcMemHandle_t):
        raise TypeError(f"Argument 'handle' has incorrect type (expected cudaIpcMemHandle_t, got {type(handle)})")
    found = _here()
    return found.ipc.open(handle, argument.integer(flags), found.device, "cudaIpcOpenMemHandle")


@presented()
def cudaIpcCloseMemHandle(devPtr):
    _here().ipc.close(argument.address(devPtr), "cudaIpcCloseMemHandle")


# errors and versions


def cudaGetLastError():
    found = process.current()
    if found is None:
        return (cudaError_t.cudaErrorInsufficientDriver,)
    error = found.thread.last_error
    found.thread.last_error = cudaError_t.cudaSuccess
    return (found.device.error or error,)


def cudaPeekAtLastError():
    found = process.current()
    if found is None:
        return (cudaError_t.cudaErrorInsufficientDriver,)
    return (found.device.error or found.thread.last_error,)


def cudaGetErrorName(error):
    return cudaError_t.cudaSuccess, argument.member(cudaError_t, error).name.encode()


def cudaGetErrorString(error):
    return cudaError_t.cudaSuccess, described(argument.member(cudaError_t, error))


def cudaDriverGetVersion():
    return cudaError_t.cudaSuccess, VERSION if process.current() else 0


def cudaRuntimeGetVersion():
    return cudaError_t.cudaSuccess, VERSION
