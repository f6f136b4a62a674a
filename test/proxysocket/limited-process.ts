/**
 * An engine in a process that may have few descriptors, and does not know of that limit: in front of UDP endpoints, the
 * argument of this program, or of an echo server of its own for TCP.
 */
import { answerRequests, Dialogue } from '../../bench/support/dialogue.ts';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { engineUnderTest } from '../support/engine-under-test.ts';
import type { Teardown } from '../support/sockets.ts';
import { echoServer } from '../support/tcp-peers.ts';
import { portOf, tcpSpec, udpSpec } from '../support/tcp-rig.ts';

async function serve(given: string | undefined) {
  const untilTheEnd = { teardown: () => undefined };
  const spec =
    given === undefined
      ? tcpSpec([(await echoServer(untilTheEnd)).endpoint])
      : udpSpec(JSON.parse(given) as EndpointSpec[]);
  const engine = engineUnderTest(untilTheEnd, {
    // More than there are: the engine's own budget never says no.
    limits: { reservedDescriptors: -10_000, connectTimeoutsMs: [250, 250] },
  });
  await engine.apply([{ kind: 'set', spec }]);
  return { port: () => portOf(engine, spec.name), counters: () => engine.snapshot()[0]?.counters };
}

type Questions = Awaited<ReturnType<typeof serve>>;

/** Asks an engine in a process of its own. */
type Ask = <What extends keyof Questions>(what: What) => Promise<ReturnType<Questions[What]>>;

/** Starts this program in a process that may have so many descriptors. */
export function startLimited(
  t: Teardown,
  descriptors: number,
  endpoints?: readonly EndpointSpec[],
): Ask {
  const program = import.meta.filename;
  const limit = ['sh', '-c', `ulimit -n ${descriptors} && exec "$0" "$@"`];
  const args = endpoints === undefined ? [] : [JSON.stringify(endpoints)];
  const proxy = new Dialogue([...limit, process.execPath, program, ...args]);
  t.teardown(() => proxy.kill());
  return (what) => proxy.ask({ what });
}

if (process.argv[1] === import.meta.filename) {
  const questions = await serve(process.argv[2]);
  answerRequests(({ what }: { what: keyof Questions }) => questions[what]());
}
