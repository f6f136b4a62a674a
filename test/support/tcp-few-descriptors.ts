/**
 * Run by a test in a process that may have few descriptors: an engine that does not know of that
 * limit, in front of an echo server. Prints its port, and its counters when its input ends.
 */
import { once } from 'node:events';
import { createNodeEngine } from '../../src/proxysocket/node-engine.ts';
import { echoServer } from './tcp-peers.ts';
import { tcpSpec } from './tcp-rig.ts';

const cleanup: (() => unknown)[] = [];
const server = await echoServer({ teardown: (after) => cleanup.push(after) });
const engine = createNodeEngine({
  documentedOnly: process.argv[2] === 'documented',
  // More than there are: the engine's own budget never says no.
  limits: { reservedDescriptors: -10_000, connectTimeoutsMs: [250, 250] },
});
await engine.apply([{ kind: 'set', spec: tcpSpec([server.endpoint]) }]);
const [snapshot] = engine.snapshot();
const [listener] = snapshot?.listeners ?? [];
process.stdout.write(`${listener?.state === 'listening' ? listener.boundPort : 0}\n`);
process.stdin.resume();
await once(process.stdin, 'end');
await engine.destroy();
process.stdout.write(`${JSON.stringify(snapshot?.counters)}\n`);
for (const after of cleanup) await after();
