import t from 'tap';
import { CANARY_TIMEOUT_MS } from '../../src/portal/bounds.ts';
import { contact, openServer, portOf } from '../../src/portal/rules/canary.ts';

t.test('a connection that is there does not time out when the event loop pauses', async (t) => {
  const server = await openServer('127.0.0.1', () => 'hello\n');
  t.teardown(() => server.close());
  const at = { host: '127.0.0.1', port: portOf(server) };
  for (const listens of [false, true]) {
    // Once the connection is with the kernel.
    setImmediate(() => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, CANARY_TIMEOUT_MS + 50);
    });
    t.equal((await contact(at, listens)).result, 'alive');
  }
});
