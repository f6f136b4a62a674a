/**
 * Run by a test in a process that may have few descriptors: an engine that does not know of that
 * limit, in front of an echo server. Prints its port, and its counters when its input ends.
 */
import { once } from 'node:events';
import { engineUnderTest } from '../../support/engine-under-test.ts';
import { echoServer } from '../../support/tcp-peers.ts';
import { portOf, tcpSpec } from '../../support/tcp-rig.ts';
import { until } from '../../support/until.ts';

const cleanup: (() => unknown)[] = [];
const teardown = { teardown: (after: () => unknown) => cleanup.unshift(after) };
const server = await echoServer(teardown);
const engine = engineUnderTest(teardown, {
  // More than there are: the engine's own budget never says no.
  limits: { reservedDescriptors: -10_000, connectTimeoutsMs: [250, 250] },
});
await engine.apply([{ kind: 'set', spec: tcpSpec([server.endpoint]) }]);
process.stdout.write(`${portOf(engine)}\n`);
process.stdin.resume();
await once(process.stdin, 'end');
const counters = () => engine.snapshot()[0]?.counters;
await until(() => counters()?.active === 0);
process.stdout.write(`${JSON.stringify(counters())}\n`);
await engine.destroy();
for (const after of cleanup) await after();
