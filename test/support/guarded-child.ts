/**
 * A process with the guarded `linux` engine, which stops as the program does. Arguments: where runs are
 * noted, the port of an endpoint. Sends the port that it serves, and `stopping` once it has been asked to
 * end; the message `throw` is an error that nobody catches.
 */
import { watchProcess } from '../../src/cli/lifecycle.ts';
import { CrashBreaker } from '../../src/proxysocket/linux/breaker.ts';
import { createGuardedLinuxEngine } from '../../src/proxysocket/linux/guarded.ts';
import { captureLog } from './captured-log.ts';
import { endpointAt } from './tcp-peers.ts';
import { tcpSpec } from './tcp-rig.ts';

const [path = '', endpoint = ''] = process.argv.slice(2);
const stop = new AbortController();
const { log } = await captureLog();
const engine = await createGuardedLinuxEngine({
  breaker: new CrashBreaker({ path }),
  stopping: stop.signal,
});
watchProcess({
  process,
  log,
  hangUp: 'read-again',
  onStop() {
    stop.abort();
    process.send?.('stopping');
  },
});
const spec = tcpSpec([endpointAt(Number(endpoint))]);
await engine.apply([{ kind: 'set', spec }]);
const [listener] = engine.snapshot()[0]?.listeners ?? [];
process.on('message', () => {
  throw new Error('nobody catches this');
});
process.send?.(listener?.state === 'listening' ? listener.boundPort : 0);
