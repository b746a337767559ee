// What cuDNN's libraries link to of the CUDA driver: there is no GPU, kernels are "loaded" and
// never launched. With this, cuDNN plans graphs for a GPU that is described to it.
#define ABSENT(f) int f(void) { return 100; }  // CUDA_ERROR_NO_DEVICE
#define DONE(f) int f(void) { return 0; }
#define LOADED(f) int f(void** made) { *made = something; return 0; }

static char something[4096];

ABSENT(cuInit) ABSENT(cuDeviceGetCount) ABSENT(cuDeviceGet) ABSENT(cuGetErrorString)
ABSENT(cuGetErrorName) ABSENT(cuCtxGetCurrent) ABSENT(cuCtxGetLimit) ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent) ABSENT(cuStreamGetCtx) ABSENT(cuLinkCreate) ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete) ABSENT(cuLinkDestroy) ABSENT(cuLaunchKernel) ABSENT(cuLaunchKernelEx)
ABSENT(cuLaunchCooperativeKernel) ABSENT(cuLibraryLoadFromFile) ABSENT(cuTensorMapEncodeTiled)
ABSENT(cuTensorMapEncodeIm2col)

LOADED(cuLibraryLoadData) LOADED(cuLibraryGetKernel) LOADED(cuModuleLoadData)
LOADED(cuModuleGetFunction) LOADED(cuKernelGetFunction)
DONE(cuLibraryUnload) DONE(cuModuleUnload) DONE(cuKernelSetAttribute)

int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuKernelGetAttribute(int* value) { *value = 1024; return 0; }
int cuOccupancyMaxPotentialClusterSize(int* size) { *size = 8; return 0; }
