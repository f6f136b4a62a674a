/**
 * Run by tests in a process that may have few descriptors: an engine that does not know of that limit, in front of UDP
 * endpoints, its argument, or of an echo server of its own for TCP.
 */
import { answerRequests } from '../../bench/support/dialogue.ts';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { engineUnderTest } from '../support/engine-under-test.ts';
import { echoServer } from '../support/tcp-peers.ts';
import { portOf, tcpSpec, udpSpec } from '../support/tcp-rig.ts';

const untilTheEnd = { teardown: () => undefined };
const [, , given] = process.argv;
const spec =
  given === undefined
    ? tcpSpec([(await echoServer(untilTheEnd)).endpoint])
    : udpSpec(JSON.parse(given) as EndpointSpec[]);
const engine = engineUnderTest(untilTheEnd, {
  // More than there are: the engine's own budget never says no.
  limits: { reservedDescriptors: -10_000, connectTimeoutsMs: [250, 250] },
});
await engine.apply([{ kind: 'set', spec }]);

const questions = {
  port: () => portOf(engine, spec.name),
  counters: () => engine.snapshot()[0]?.counters,
};

export type Questions = typeof questions;

answerRequests(({ what }: { what: keyof Questions }) => questions[what]());
