/* A libnvidia-ml.so.1 for tests: two GPUs whose state is a text file, read at each call, so that a test can change it.
 *
 * $STUB_NVML names the file. One directive a line:
 *   init CODE        nvmlInit fails           count N          number of GPUs
 *   lost GPU         does not answer          hang             the count never comes back
 *   mig GPU          divided: instances 1 (two compute instances) and 2
 *   sm GPU MHZ       SM clock                 reasons GPU HEX  clocks event reasons
 *   pcie GPU BYTES   counter of sent bytes    gpm GPU PERCENT  SM activity; CODE if negative
 *   fail NAME CODE   one function fails       xid GPU NUMBER   an event; given once, in order
 *
 * Layouts as in nvml.h of CUDA 12. Compiled with -DOLD_DRIVER it is a driver of 2020: no event reasons by that name, no
 * second memory struct, no GPM, no new fields.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, LOST = 15 };
enum { UNSIGNED_LONG_LONG = 3 };
typedef struct { int gpu; int place; } Device; /* place: of the MIG device, -1 for the GPU */
static Device gpus[2] = {{0, -1}, {1, -1}};
static Device parts[2][3] = {{{0, 0}, {0, 1}, {0, 2}}, {{1, 0}, {1, 1}, {1, 2}}};
static int initialised;

/* The value of "key GPU VALUE" (or of "key VALUE" for gpu -1); 0 if there is no such line. */
static int find(const char *key, int gpu, char *value) {
  FILE *file = getenv("STUB_NVML") ? fopen(getenv("STUB_NVML"), "r") : NULL;
  char line[128], name[64], first[64], second[64];
  int found = 0;
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    first[0] = second[0] = 0;
    if (sscanf(line, "%63s %63s %63s", name, first, second) < 1 || strcmp(name, key)) continue;
    if (gpu >= 0 && atoi(first) != gpu) continue;
    strcpy(value, gpu >= 0 ? second : first);
    found = 1;
  }
  fclose(file);
  return found;
}
static double number(const char *key, int gpu, double otherwise) {
  char value[64];
  return find(key, gpu, value) ? atof(value) : otherwise;
}
static int failing(const char *name) {
  FILE *file = getenv("STUB_NVML") ? fopen(getenv("STUB_NVML"), "r") : NULL;
  char line[128], which[64];
  int code = 0, one;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "fail %63s %d", which, &one) == 2 && !strcmp(which, name)) code = one;
  if (file) fclose(file);
  return code;
}
static int check(Device *device) {
  char none[64];
  if (!initialised) return UNINITIALIZED;
  if (!device) return INVALID;
  return find("lost", device->gpu, none) ? LOST : OK;
}
#define CHECK(device) { int code = check(device); if (!code) code = failing(__func__); if (code) return code; }
#define WHOLE(device) { CHECK(device) if (device->place >= 0) return NOT_SUPPORTED; }

int nvmlInitWithFlags(unsigned flags) {
  int code = (int)number("init", -1, 0);
  (void)flags;
  if (!code) initialised = 1;
  return code;
}
int nvmlShutdown(void) {
  initialised = 0;
  if (getenv("STUB_NVML_CLOSED")) fclose(fopen(getenv("STUB_NVML_CLOSED"), "w"));
  return OK;
}
const char *nvmlErrorString(int code) { (void)code; return "stub"; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  char none[64];
  while (find("hang", -1, none)) sleep(1);
  *count = (unsigned)number("count", -1, 2);
  return failing(__func__);
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  char none[64];
  if (find("lost", (int)index, none)) return LOST;
  *device = &gpus[index];
  return OK;
}
int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
  CHECK(device)
  if (device->place < 0) snprintf(text, size, "GPU-00000000-0000-0000-0000-00000000000%d", device->gpu);
  else snprintf(text, size, "MIG-00000000-0000-0000-0000-0000000000%d%d", device->gpu, device->place);
  return OK;
}
int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
  CHECK(device)
  snprintf(text, size, "Stub H100%s", device->place < 0 ? "" : device->place < 2 ? " MIG 1c.2g.20gb" : " MIG 1g.10gb");
  return OK;
}
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(Device *device, struct pci *pci) {
  CHECK(device)
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", 0x1b + device->gpu);
  return OK;
}
struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(Device *device, struct utilization *both) {
  char none[64];
  WHOLE(device)
  if (find("mig", device->gpu, none)) return NOT_SUPPORTED;
  both->gpu = 97;
  both->memory = 40;
  return OK;
}
int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *mhz) {
  WHOLE(device)
  *mhz = kind == 1 ? (unsigned)number("sm", device->gpu, 1980) : 2619;
  return OK;
}
int nvmlDeviceGetMaxClockInfo(Device *device, int kind, unsigned *mhz) { (void)kind; WHOLE(device) *mhz = 1980; return OK; }
int nvmlDeviceGetTemperature(Device *device, int kind, unsigned *celsius) { (void)kind; WHOLE(device) *celsius = 61; return OK; }
int nvmlDeviceGetPerformanceState(Device *device, int *state) { WHOLE(device) *state = 0; return OK; }
int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) { WHOLE(device) *milliwatts = 650500; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *milliwatts) { WHOLE(device) *milliwatts = 700000; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *mj) { WHOLE(device) *mj = 129931554972ULL; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device *device, unsigned *value) { WHOLE(device) *value = 5; return OK; }
int nvmlDeviceGetMaxPcieLinkGeneration(Device *device, unsigned *value) { WHOLE(device) *value = 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(Device *device, unsigned *value) { WHOLE(device) *value = device->gpu ? 8 : 16; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(Device *device, unsigned *value) { WHOLE(device) *value = 16; return OK; }
int nvmlDeviceGetPcieReplayCounter(Device *device, unsigned *value) { WHOLE(device) *value = 3; return OK; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(Device *device, struct memory *memory) {
  CHECK(device)
  memory->total = device->place < 0 ? 80ULL << 30 : 10ULL << 30;
  memory->used = 3ULL << 30;
  memory->free = memory->total - memory->used;
  return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *mask) {
  char value[64] = "0";
  WHOLE(device)
  find("reasons", device->gpu, value);
  *mask = strtoull(value, NULL, 16);
  return OK;
}
struct field { unsigned id, scope; long long when, took; unsigned type, code; unsigned long long value; };
int nvmlDeviceGetFieldValues(Device *device, int count, struct field *fields) {
  WHOLE(device)
  for (int i = 0; i < count; i++) {
    struct field *field = &fields[i];
    field->type = UNSIGNED_LONG_LONG;
    field->code = OK;
    switch (field->id) {
      case 5: field->value = 2; break;
      case 74: field->value = 2500000000ULL; break;
      case 75: field->value = 9000000000ULL; break;
      case 144: field->value = device->gpu; break;
#ifndef OLD_DRIVER
      case 269: case 270: field->value = 0; break;
      case 271: field->value = 1500000000ULL; break;
      case 138: if (field->scope != 0xFFFFFFFF) { field->code = INVALID; break; } field->value = 1000; break;
      case 197: field->value = (unsigned long long)number("pcie", device->gpu, 0); break;
#endif
      default: field->code = NOT_SUPPORTED;
    }
  }
  return OK;
}
int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
  char none[64];
  WHOLE(device)
  *current = *pending = find("mig", device->gpu, none);
  return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { WHOLE(device) *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **part) {
  WHOLE(device)
  if (index >= 3) return NOT_FOUND;
  *part = &parts[device->gpu][index];
  return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
  CHECK(device)
  *id = device->place < 2 ? 1 : 2;
  return OK;
}
#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(Device *device, struct memory_v2 *memory) {
  struct memory first;
  int code = nvmlDeviceGetMemoryInfo(device, &first);
  if (code) return code;
  if (memory->version != 0x2000028) return 25;
  memory->total = first.total;
  memory->free = first.free;
  memory->reserved = 1ULL << 30;
  memory->used = first.used - memory->reserved;
  return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *mask) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(device, mask);
}
struct event { Device *device; unsigned long long type, data; unsigned instance, compute; };
/* Events are queued from the first registration on: what the file has before that nobody hears of. */
static int queued(int place, int *gpu, int *xid) {
  FILE *file = getenv("STUB_NVML") ? fopen(getenv("STUB_NVML"), "r") : NULL;
  char line[128];
  int count = 0;
  while (file && count <= place && fgets(line, sizeof line, file)) count += sscanf(line, "xid %d %d", gpu, xid) == 2;
  if (file) fclose(file);
  return count;
}
static int events_given = -1;
int nvmlEventSetCreate(int **set) { static int one; *set = &one; return OK; }
int nvmlEventSetFree(int *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(Device *device, unsigned long long kinds, int *set) {
  int gpu, xid;
  (void)set;
  WHOLE(device)
  if (events_given < 0) events_given = queued(1 << 20, &gpu, &xid);
  return kinds == 8 ? OK : NOT_SUPPORTED;
}
int nvmlEventSetWait_v2(int *set, struct event *event, unsigned milliseconds) {
  int gpu, xid;
  (void)set;
  (void)milliseconds;
  if (events_given < 0 || queued(events_given, &gpu, &xid) <= events_given) return TIMEOUT;
  events_given++;
  event->device = &gpus[gpu];
  event->type = 8;
  event->data = (unsigned long long)xid;
  event->instance = event->compute = 0xFFFFFFFF;
  return OK;
}
struct support { unsigned version, supported; };
int nvmlGpmQueryDeviceSupport(Device *device, struct support *support) { WHOLE(device) support->supported = 1; return OK; }
struct sample { int gpu, taken; };
int nvmlGpmSampleAlloc(struct sample **sample) { *sample = calloc(1, sizeof **sample); return OK; }
int nvmlGpmSampleFree(struct sample *sample) { free(sample); return OK; }
static int take(Device *device, struct sample *sample) {
  static int clock;
  double percent = number("gpm", device->gpu, 50);
  if (percent < 0) return (int)-percent;
  sample->gpu = device->gpu;
  sample->taken = ++clock;
  return OK;
}
int nvmlGpmSampleGet(Device *device, struct sample *sample) { WHOLE(device) return take(device, sample); }
int nvmlGpmMigSampleGet(Device *device, unsigned instance, struct sample *sample) {
  (void)instance;
  WHOLE(device)
  return take(device, sample);
}
struct metric { unsigned id, code; double value; const char *names[3]; };
struct request { unsigned version, count; struct sample *earlier, *later; struct metric metrics[]; };
int nvmlGpmMetricsGet(struct request *request) {
  if (request->version != 1 || request->earlier->taken >= request->later->taken) return INVALID;
  for (unsigned i = 0; i < request->count; i++) {
    struct metric *metric = &request->metrics[i];
    metric->code = OK;
    switch (metric->id) {
      case 2: metric->value = number("gpm", request->later->gpu, 50); break;
      case 3: metric->value = 100.5; break;
      case 10: metric->value = 0.0 / 0.0; break;
      case 20: metric->value = 1024; break;
      default: metric->code = NOT_SUPPORTED;
    }
  }
  return OK;
}
#endif
