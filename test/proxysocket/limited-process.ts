import { Dialogue } from '../../bench/support/dialogue.ts';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import type { Teardown } from '../support/sockets.ts';
import type { Questions } from './limited-child.ts';

/** Asks an engine in a process of its own. */
type Ask = <What extends keyof Questions>(what: What) => Promise<ReturnType<Questions[What]>>;

/** Starts limited-child.ts in a process that may have so many descriptors. */
export function startLimited(
  t: Teardown,
  descriptors: number,
  endpoints?: readonly EndpointSpec[],
): Ask {
  const child = new URL('limited-child.ts', import.meta.url).pathname;
  const limit = ['sh', '-c', `ulimit -n ${descriptors} && exec "$0" "$@"`, process.execPath, child];
  const args = endpoints === undefined ? [] : [JSON.stringify(endpoints)];
  const proxy = new Dialogue([...limit, ...args]);
  t.teardown(() => proxy.kill());
  return (what) => proxy.ask({ what });
}
