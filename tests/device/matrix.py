"""Keeps one card at a matrix product for some seconds: `python -m tests.device.matrix SECONDS [CARD]`.

It needs the driver and nothing else: the kernel is PTX, which the driver itself compiles. Plain multiply-adds, no
tensor cores. Exit 1 with a sentence where there is no card.
"""

import ctypes
import sys
import time

SIDE = 4096
"""Rows and columns of the product: some ten milliseconds on a large card."""
BLOCK = 16

PTX = b"""
.version 6.0
.target sm_70
.address_size 64

.visible .entry product(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
    .reg .pred %done;
    .reg .b32 %col, %row, %n, %k, %t;
    .reg .f32 %x, %y, %sum;
    .reg .b64 %a, %b, %c, %at, %step;

    ld.param.u64 %a, [pa];
    ld.param.u64 %b, [pb];
    ld.param.u64 %c, [pc];
    ld.param.u32 %n, [pn];
    cvta.to.global.u64 %a, %a;
    cvta.to.global.u64 %b, %b;
    cvta.to.global.u64 %c, %c;

    mov.u32 %t, %ctaid.x;
    mov.u32 %k, %ntid.x;
    mov.u32 %col, %tid.x;
    mad.lo.u32 %col, %t, %k, %col;
    mov.u32 %t, %ctaid.y;
    mov.u32 %k, %ntid.y;
    mov.u32 %row, %tid.y;
    mad.lo.u32 %row, %t, %k, %row;

    mul.lo.u32 %t, %row, %n;
    mul.wide.u32 %at, %t, 4;
    add.u64 %a, %a, %at;
    mul.wide.u32 %at, %col, 4;
    add.u64 %b, %b, %at;
    add.u32 %t, %t, %col;
    mul.wide.u32 %at, %t, 4;
    add.u64 %c, %c, %at;
    mul.wide.u32 %step, %n, 4;

    mov.f32 %sum, 0f00000000;
    mov.u32 %k, 0;
LOOP:
    ld.global.f32 %x, [%a];
    ld.global.f32 %y, [%b];
    fma.rn.f32 %sum, %x, %y, %sum;
    add.u64 %a, %a, 4;
    add.u64 %b, %b, %step;
    add.u32 %k, %k, 1;
    setp.lt.u32 %done, %k, %n;
    @%done bra LOOP;

    st.global.f32 [%c], %sum;
    ret;
}
"""


class CardFailed(Exception):
    """The driver refused; the text says what."""


class Driver:
    """What is needed of libcuda."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CardFailed(f"libcuda cannot be loaded: {error}") from error

    def call(self, name: str, *arguments: object) -> None:
        """One call; raises CardFailed."""
        code = getattr(self._cuda, name)(*arguments)
        if code != 0:
            raise CardFailed(f"{name} answers {code}")


def run(seconds: float, card: int) -> int:
    """Multiply until the time is over; the number of products. Raises CardFailed."""
    driver = Driver()
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuInit", 0)
    driver.call("cuDeviceGet", ctypes.byref(device), card)
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent", context)
    driver.call("cuModuleLoadData", ctypes.byref(module), PTX)
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, b"product")
    matrices = [ctypes.c_uint64() for _ in range(3)]
    for matrix in matrices:
        driver.call("cuMemAlloc_v2", ctypes.byref(matrix), ctypes.c_size_t(4 * SIDE * SIDE))
        driver.call("cuMemsetD32_v2", matrix, ctypes.c_uint(0x3F800000), ctypes.c_size_t(SIDE * SIDE))
    side = ctypes.c_uint(SIDE)
    arguments = (ctypes.c_void_p * 4)(
        *[ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in (*matrices, side)]
    )
    grid = SIDE // BLOCK
    products, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        driver.call("cuLaunchKernel", function, grid, grid, 1, BLOCK, BLOCK, 1, 0, None, arguments, None)
        driver.call("cuCtxSynchronize")
        products += 1
    first = ctypes.c_float()
    driver.call("cuMemcpyDtoH_v2", ctypes.byref(first), matrices[2], ctypes.c_size_t(4))
    if first.value != SIDE:
        raise CardFailed(f"a product of ones is {first.value}, not {SIDE}")
    return products


def main(arguments: list[str]) -> int:
    """The command line."""
    try:
        products = run(float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0)
    except CardFailed as error:
        print(f"no matrix product: {error}", file=sys.stderr)
        return 1
    print(f"{products} products of {SIDE} x {SIDE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
