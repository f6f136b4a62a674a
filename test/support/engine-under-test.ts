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
import type { AcceptorEngine } from '../../src/proxysocket/acceptor-engine.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { createDataPlane } from '../../src/proxysocket/linux/engine.ts';
import { Loop } from '../../src/proxysocket/linux/loop.ts';
import { openSys } from '../../src/proxysocket/linux/sys/sys.ts';
import { createNodeEngine, type NodeEngineOptions } from '../../src/proxysocket/node/engine.ts';
import { systemClock } from '../../src/util/clock.ts';
import type { Teardown } from './sockets.ts';

const ASKED = process.env['KPNG_TEST_ENGINE'];
export const DOCUMENTED = ASKED === 'documented';
export const ENGINE = ASKED === 'linux' ? 'linux' : 'node';

const sys = ENGINE === 'linux' ? await openSys() : undefined;

/** An engine, destroyed at the end of the test. */
export function engineUnderTest(t: Teardown, options: NodeEngineOptions): AcceptorEngine {
  if (sys !== undefined) return inlineEngine(t, options);
  const engine = createNodeEngine({ documentedOnly: DOCUMENTED, ...options });
  t.teardown(() => engine.destroy());
  return engine;
}

/** A loop that takes turns with that of Node until the test ends. */
export function inlineLoop(t: Teardown, calls = sys): Loop {
  if (calls === undefined) throw new Error('only with KPNG_TEST_ENGINE=linux');
  const loop = new Loop(calls, (error) => {
    throw error;
  });
  const stopTurns = loop.takeTurns();
  t.teardown(() => {
    stopTurns();
    loop.end();
  });
  return loop;
}

/** The `linux` engine in this thread, destroyed at the end of the test. */
export function inlineEngine(t: Teardown, options: NodeEngineOptions, calls = sys): AcceptorEngine {
  const engine = createDataPlane(inlineLoop(t, calls), {
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    clock: options.clock ?? systemClock,
    random: options.random ?? Math.random,
    descriptorLimit: options.descriptorLimit ?? processDescriptorLimit(),
  });
  t.teardown(() => engine.destroy());
  return engine;
}
