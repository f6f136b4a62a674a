/**
 * Which engine the tests of sockets run against: the environment variable KPNG_TEST_ENGINE says, and
 * test/run.ts runs the same files once for each. All run in the thread of the test, so events are published and
 * counters changed before anything else happens, and a test decides the time.
 *
 * - `node` (the default)
 * - `documented`: the same with only what Node documents; it accepts clients in another way
 * - `linux`: what a worker of the pool runs. The pool itself is tested in test/proxysocket/pool.
 */
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import type { EngineContext } from '../../src/proxysocket/core/service-port.ts';
import type { Engine } from '../../src/proxysocket/engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { createDataPlane } from '../../src/proxysocket/linux/engine.ts';
import { Loop } from '../../src/proxysocket/linux/loop.ts';
import { SO_SNDBUF, SOL_SOCKET } from '../../src/proxysocket/linux/sys/abi.ts';
import { openSys, Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { linuxUdp } from '../../src/proxysocket/linux/udp/transport.ts';
import { createNodeEngine, type NodeEngineOptions } from '../../src/proxysocket/node/engine.ts';
import { NodeUdpTransport, type NodeUdpOptions } from '../../src/proxysocket/node/udp/transport.ts';
import { UdpAcceptor } from '../../src/proxysocket/udp/acceptor.ts';
import { systemClock } from '../../src/util/clock.ts';
import type { Teardown } from './sockets.ts';

const ASKED = process.env['KPNG_TEST_ENGINE'];
export const DOCUMENTED = ASKED === 'documented';
export const ENGINE = ASKED === 'linux' ? 'linux' : 'node';

const sys = ENGINE === 'linux' ? await openSys() : undefined;

/** An engine, destroyed at the end of the test. */
export function engineUnderTest(t: Teardown, options: NodeEngineOptions): Engine {
  const engine =
    sys === undefined
      ? createNodeEngine({ documentedOnly: DOCUMENTED, ...options })
      : inlineEngine(t, options);
  t.teardown(() => engine.destroy());
  return engine;
}

/** The half of an engine that carries datagrams. */
export function udpAcceptorUnderTest(
  t: Teardown,
  context: EngineContext,
  options: NodeUdpOptions,
): UdpAcceptor {
  return sys === undefined
    ? new UdpAcceptor(new NodeUdpTransport(context, options), context)
    : new UdpAcceptor(linuxUdp(inlineLoop(t), context.limits), context);
}

/** A loop that takes turns with that of Node until the test ends. */
export function inlineLoop(t: Teardown, calls = sys): Loop {
  if (calls === undefined) throw new Error('only with KPNG_TEST_ENGINE=linux');
  const loop = new Loop(calls, {
    onFault(error) {
      throw error;
    },
  });
  let turning = true;
  const turn = (): void => {
    if (!turning) return;
    loop.turn(0);
    setImmediate(turn);
  };
  setImmediate(turn);
  t.teardown(() => {
    turning = false;
    loop.end();
  });
  return loop;
}

function inlineEngine(t: Teardown, options: NodeEngineOptions): Engine {
  const loop = inlineLoop(t);
  return createDataPlane(loop, {
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    descriptorLimit: processDescriptorLimit(),
  });
}

type Open = (this: Sys, argument: number) => number;

/**
 * Gives every TCP socket of the `linux` engine in this thread the smallest send buffer that the kernel
 * has, so that hardly any write is taken in full. (With the smallest receive buffer TCP would wait for
 * its timers all the time.) Until the test ends.
 */
export function withSmallBuffers(t: Teardown): void {
  const { prototype } = Sys;
  const before = Object.getOwnPropertyDescriptors(prototype);
  const cover = (name: 'stream' | 'accept'): void => {
    const open = before[name].value as unknown as Open;
    const value: Open = function (argument) {
      const fd = open.call(this, argument);
      if (fd >= 0) this.setOption(fd, SOL_SOCKET, SO_SNDBUF, 1);
      return fd;
    };
    Object.defineProperty(prototype, name, { ...before[name], value });
  };
  cover('stream');
  cover('accept');
  t.teardown(() => Object.defineProperties(prototype, before));
}
