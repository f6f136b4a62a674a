import { RoundRobinBalancer } from '../../../roundrobin/balancer.ts';
import { newCounters } from '../../counters.ts';
import { ProcessDescriptors } from '../../core/descriptors.ts';
import { DEFAULT_LIMITS } from '../../limits.ts';
import type { EngineContext, ServicePort } from '../../core/service-port.ts';
import type { Protocol } from '../../spec.ts';
import { Loop } from '../loop.ts';
import { LoopClock } from '../loop-clock.ts';
import type { Sockaddr } from '../sys/sockaddr.ts';
import type { Sys } from '../sys/sys.ts';
import { newSys } from './basics.ts';
import type { Findings } from './probe.ts';

/** A canary that takes longer than this is dead, also on a machine that is busy. Milliseconds. */
const PATIENCE_MS = 5000;
/** Nor is one dead that has hardly been given a processor: the whole machine may have stood still. */
const LEAST_TURNS = 10_000;

/** What canaries have to do with: a loop, and something that stands for an engine. */
export interface Cage {
  readonly sys: Sys;
  readonly loop: Loop;
  readonly context: EngineContext;
}

export function newCage(findings: Findings): Cage {
  const sys = newSys(findings);
  const clock = new LoopClock();
  const loop = new Loop(sys, {
    onWake: () => clock.tick(),
    onFault(error) {
      throw error;
    },
  });
  const descriptors = new ProcessDescriptors({ limit: 1000, reserve: 0 });
  const limits = { ...DEFAULT_LIMITS, connectTimeoutsMs: [PATIENCE_MS] };
  return { sys, loop, context: { limits, clock, descriptors } };
}

/** A service port with one endpoint on this host. */
export function canaryService({ context }: Cage, protocol: Protocol, port: number): ServicePort {
  const balancer = new RoundRobinBalancer({
    clock: context.clock,
    random: Math.random,
    affinity: { kind: 'none' },
    maxAffinityClients: 1,
  });
  balancer.update([{ address: '127.0.0.1', port, internal: true, external: true }]);
  const { udpIdleTimeoutMs } = context.limits;
  return { name: 'canary', protocol, balancer, counters: newCounters(), udpIdleTimeoutMs };
}

/** Turns the loop and lets the others work until they are done; throws when that takes too long. */
export function keepTurning({ loop }: Cage, work: () => boolean, what: string): void {
  const deadline = performance.now() + PATIENCE_MS;
  for (let turns = 0; !work(); turns += 1) {
    loop.turn(0);
    if (turns >= LEAST_TURNS && performance.now() > deadline) {
      throw new Error(`${what} did not end within ${PATIENCE_MS} ms and ${turns} turns`);
    }
  }
}

export function loopback(sys: Sys, port: number): Sockaddr {
  return sys.sockaddr({ address: '127.0.0.1', port });
}

/** Memory comes and goes, so that what nobody holds is collected. */
export function makeGarbage(): void {
  let bytes = 0;
  for (let index = 0; index < 16; index += 1) bytes += new ArrayBuffer(1 << 20).byteLength;
  const objects = Array.from({ length: 10_000 }, (_, index) => ({ index, bytes }));
  if (objects.length === 0) throw new Error('no objects');
}

/** An endpoint that sends datagrams back. Returns its port and what lets it work. */
export function datagramEcho({ sys }: Cage): {
  readonly fd: number;
  readonly port: number;
  readonly work: () => void;
} {
  const fd = sys.sockets.datagram(4);
  sys.sockets.bind(fd, loopback(sys, 0));
  const slots = sys.datagramSlots(8);
  const list = sys.sendList(8);
  const names = sys.peerNames();
  return {
    fd,
    port: sys.sockets.localAddress(fd)?.port ?? 0,
    work: () => {
      const count = slots.receive(fd, 0, slots.count);
      if (count <= 0) return;
      list.clear();
      const taken = Array.from({ length: count }, (_, slot) => {
        const name = names.take(slots.names, slots.nameOffset(slot));
        list.add(slots, [slot], 0, 1, { name, nameLength: 16, source: undefined });
        return name;
      });
      for (let sent = 0; sent < count;) sent += Math.max(1, list.send(fd, sent));
      for (const name of taken) names.release(name);
    },
  };
}
