import * as k from '../sys/constants.ts';
import type { Sockets } from '../sys/sockets.ts';

/** Between two probes, and how many get no answer before the peer counts as gone: as libuv sets them. */
const PROBE_SECONDS = 1;
const PROBES = 10;

/** Sends what is written at once. */
export function setNoDelay(sockets: Sockets, fd: number): void {
  sockets.setOption(fd, k.IPPROTO_TCP, k.TCP_NODELAY, 1);
}

/** Asks an idle peer whether it is still there. Whole seconds, at least one. */
export function setKeepAlive(sockets: Sockets, fd: number, idleMs: number): void {
  const seconds = Math.max(1, Math.trunc(idleMs / 1000));
  sockets.setOption(fd, k.SOL_SOCKET, k.SO_KEEPALIVE, 1);
  sockets.setOption(fd, k.IPPROTO_TCP, k.TCP_KEEPIDLE, seconds);
  sockets.setOption(fd, k.IPPROTO_TCP, k.TCP_KEEPINTVL, PROBE_SECONDS);
  sockets.setOption(fd, k.IPPROTO_TCP, k.TCP_KEEPCNT, PROBES);
}
