/* Copyright (c) 2026, the tokforge.sglang contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libcuda for tests: two devices whose memory is this process's own, with the calls of the real one's ABI (cuda.h).
 * Every call checks the order that the real driver demands. CUDA_FAULT names what goes wrong:
 *   init      cuInit returns 999        none      there is no device
 *   hang      a copy from 0 to 1 never ends
 *   lost      a copy between devices is not done
 *   half      a copy between devices stops in its middle
 *   memory    memory does not keep its first byte
 *   no_peer   devices cannot access each other
 *   crash     the first context kills the process
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 2, OK = 0, INVALID = 1, NOT_INITIALIZED = 3, NO_CONTEXT = 201, PEER_ON = 704, UNKNOWN = 999 };
static int initialised, contexts[DEVICES], peers[DEVICES], current = -1;
static uint64_t held[DEVICES];

static int fault(const char *name) {
  const char *given = getenv("CUDA_FAULT");
  return given && !strcmp(given, name);
}
static int device_of(void *context) {
  for (int at = 0; at < DEVICES; at++)
    if (context == &contexts[at]) return at;
  return -1;
}
int cuGetErrorString(int code, const char **text) {
  *text = code == UNKNOWN ? "unknown error" : "some error";
  return OK;
}
int cuInit(unsigned flags) {
  if (flags) return INVALID;
  if (fault("init")) return UNKNOWN;
  initialised = 1;
  return OK;
}
int cuDeviceGetCount(int *count) {
  if (!initialised) return NOT_INITIALIZED;
  *count = fault("none") ? 0 : DEVICES;
  return OK;
}
int cuDeviceGet(int *device, int ordinal) {
  if (!initialised) return NOT_INITIALIZED;
  if (ordinal < 0 || ordinal >= DEVICES) return INVALID;
  *device = ordinal;
  return OK;
}
int cuDeviceGetPCIBusId(char *text, int length, int device) {
  if (length < 13) return INVALID;
  strcpy(text, device ? "0000:81:00.0" : "0000:01:00.0");
  return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  if (fault("crash")) abort();
  *context = &contexts[device];
  return OK;
}
int cuCtxSetCurrent(void *context) {
  int device = device_of(context);
  if (device < 0) return INVALID;
  current = device;
  return OK;
}
int cuCtxSynchronize(void) { return current < 0 ? NO_CONTEXT : OK; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (current < 0) return NO_CONTEXT;
  *address = (uint64_t)malloc(bytes);
  held[current] = *address;
  return OK;
}
int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t bytes) {
  if (current < 0 || held[current] != address) return INVALID;
  memset((void *)address, value, bytes);
  if (fault("memory")) *(unsigned char *)address = (unsigned char)~value;
  return OK;
}
int cuMemcpyDtoH_v2(void *there, uint64_t address, size_t bytes) {
  if (current < 0 || held[current] != address) return INVALID;
  memcpy(there, (void *)address, bytes);
  return OK;
}
int cuDeviceCanAccessPeer(int *possible, int device, int other) {
  if (device == other) return INVALID;
  *possible = !fault("no_peer");
  return OK;
}
int cuCtxEnablePeerAccess(void *context, unsigned flags) {
  if (flags || current < 0 || device_of(context) < 0 || device_of(context) == current) return INVALID;
  if (peers[current]) return PEER_ON;
  peers[current] = 1;
  return OK;
}
int cuMemcpyPeer(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes) {
  int target = device_of(to_context), source = device_of(from_context);
  if (target < 0 || source < 0 || held[target] != to || held[source] != from) return INVALID;
  if (!fault("no_peer") && !peers[target]) return INVALID;
  if (fault("hang") && source == 0) pause();
  if (fault("lost")) return OK;
  memcpy((void *)to, (void *)from, fault("half") ? bytes / 2 : bytes);
  return OK;
}
