/**
 * Which engine the tests of sockets run against: the environment variable KPNG_TEST_ENGINE says, and
 * test/run.ts runs the same files once for each.
 *
 * - `node` (the default)
 * - `linux`: the `linux` engine as it is, with a worker thread. Whenever a test looks at events or
 *   counters, it waits until the thread has caught up.
 * - `workers`: two of these that share their places.
 * - `node-workers`: two of the `node` engine, in worker threads, that share their places.
 * - `inline`: the sockets of the `linux` engine, in the thread of the test. So events are told, and
 *   counters changed, before anything else happens, and a test decides the time.
 */
import { setEnvironmentData } from 'node:worker_threads';
import type { Engine } from '../../src/proxysocket/engine.ts';
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { createDataPlane } from '../../src/proxysocket/linux/data-plane.ts';
import { Loop } from '../../src/proxysocket/linux/loop.ts';
import { LinuxUdpTransport } from '../../src/proxysocket/linux/udp/transport.ts';
import { openSys } from '../../src/proxysocket/linux/sys/sys.ts';
import { createNodeEngine, type NodeEngineOptions } from '../../src/proxysocket/node/engine.ts';
import type { Acceptor, EngineContext } from '../../src/proxysocket/core/service-port.ts';
import { ThreadEngine } from '../../src/proxysocket/threads/engine.ts';
import { NodeUdpTransport, type NodeUdpOptions } from '../../src/proxysocket/node/udp/transport.ts';
import { createUdpAcceptor } from '../../src/proxysocket/udp/acceptor.ts';
import { SharedEngine } from '../../src/proxysocket/workers/shared-engine.ts';
import { systemClock } from '../../src/util/clock.ts';
import { FakeClock } from './fake-clock.ts';
import { TIME } from './linux-time.ts';
import { SMALL_BUFFERS, useSmallBuffers } from './small-buffers.ts';
import type { Teardown } from './sockets.ts';

export const ENGINE = process.env['KPNG_TEST_ENGINE'] ?? 'node';

/** What a listener takes: one of its descriptors outlives the worker that has it. */
export const LISTENER_DESCRIPTORS = ENGINE === 'node-workers' ? 2 : 1;

const sys = ENGINE === 'inline' ? await openSys() : undefined;

const workers = new Set<ThreadEngine>();

/** An engine, destroyed at the end of the test. */
export function engineUnderTest(t: Teardown, options: NodeEngineOptions): Engine {
  const engine = newEngine(t, options);
  t.teardown(() => engine.destroy());
  return engine;
}

/** Gives the TCP sockets of engines that are made from now on, until the test ends, the smallest buffers. */
export function withSmallBuffers(t: Teardown): void {
  const end = useSmallBuffers();
  setEnvironmentData(SMALL_BUFFERS, true);
  t.teardown(() => {
    end();
    setEnvironmentData(SMALL_BUFFERS, undefined);
  });
}

/** Waits until the threads of all engines have done and told what they have to. */
export function catchUp(): void {
  for (const engine of workers) engine.sync();
}

function newEngine(t: Teardown, options: NodeEngineOptions): Engine {
  if (ENGINE === 'linux') return threadedEngine(t, options);
  if (ENGINE === 'workers' || ENGINE === 'node-workers') {
    const engines = [threadedEngine(t, options), threadedEngine(t, options)];
    return new SharedEngine(engines, { isSteered: true, byAddress: ENGINE === 'node-workers' });
  }
  return sys === undefined ? createNodeEngine(options) : inlineEngine(t, options);
}

function threadedEngine(t: Teardown, { limits = {}, clock }: NodeEngineOptions): Engine {
  if (clock instanceof FakeClock) {
    const time = new Float64Array(new SharedArrayBuffer(8));
    time[0] = clock.now();
    setEnvironmentData(TIME, time.buffer);
    clock.follow((now) => {
      time[0] = now;
      catchUp();
    });
  }
  const kind = ENGINE === 'node-workers' ? 'node' : 'linux';
  const module = new URL(`${kind}-worker.ts`, import.meta.url);
  const engine = new ThreadEngine({ kind, limits, module });
  setEnvironmentData(TIME, undefined);
  const started = engine.start();
  workers.add(engine);
  t.teardown(() => workers.delete(engine));
  return {
    kind,
    async apply(changes) {
      await started;
      await engine.apply(changes);
    },
    snapshot(names) {
      engine.sync();
      return engine.snapshot(names);
    },
    names: () => engine.names?.(),
    activity() {
      engine.sync();
      return engine.activity();
    },
    inspect: (query) => engine.inspect(query),
    setLimits: (limits) => engine.setLimits(limits),
    close: (heir) => engine.close(heir),
    async destroy() {
      await started;
      await engine.destroy();
    },
  };
}

/** The half of an engine that carries datagrams. */
export function udpAcceptorUnderTest(
  t: Teardown,
  context: EngineContext,
  options: NodeUdpOptions,
): Acceptor {
  return sys === undefined
    ? createUdpAcceptor(new NodeUdpTransport(context, options), context)
    : createUdpAcceptor(new LinuxUdpTransport(inlineLoop(t), context), context);
}

/** A loop that takes turns with that of Node until the test ends. */
export function inlineLoop(t: Teardown, calls = sys): Loop {
  if (calls === undefined) throw new Error('only with KPNG_TEST_ENGINE=inline');
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
