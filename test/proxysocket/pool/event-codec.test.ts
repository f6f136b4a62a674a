import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import t from 'tap';
import { KpngError } from '../../../src/errors.ts';
import * as events from '../../../src/proxysocket/events.ts';
import {
  CHANNELS,
  decodeError,
  decodeMessage,
  encodeError,
  encodeMessage,
} from '../../../src/proxysocket/pool/protocol.ts';

/** As a message looks after its way to another thread. */
function posted(message: object): object {
  const { port1, port2 } = new MessageChannel();
  port1.postMessage(encodeMessage(message), []);
  const received = receiveMessageOnPort(port2) as { message: object };
  port1.close();
  return decodeMessage(received.message);
}

t.test('every channel of the data path is carried, in an order of its own', (t) => {
  t.same(new Set(CHANNELS), new Set(Object.values(events)));
  t.ok(CHANNELS.length < 32, 'one bit each');
  t.end();
});

t.test('errors keep their class, code, cause and what else users see', (t) => {
  const cause = Object.assign(new Error('bind EADDRINUSE'), { code: 'EADDRINUSE' });
  const error = new KpngError('KPNG_LISTEN_ADDRESS_IN_USE', 'cannot listen', {
    cause,
    servicePort: 'ns/web:http',
  });
  const listen = { address: '127.0.0.1', port: 80, traffic: 'internal' };
  const message = { servicePort: 'ns/web:http', listen, error, retryInMs: 5 };
  const arrived = posted(message) as { error: KpngError };
  t.ok(arrived.error instanceof KpngError);
  t.equal(arrived.error.retried, true);
  t.match(arrived, {
    listen,
    retryInMs: 5,
    error: {
      code: 'KPNG_LISTEN_ADDRESS_IN_USE',
      message: 'cannot listen',
      servicePort: 'ns/web:http',
      stack: error.stack,
      cause: { code: 'EADDRINUSE', message: 'bind EADDRINUSE' },
    },
  });

  const plain = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
  const other = (posted({ error: plain }) as { error: Error }).error;
  t.ok(other instanceof Error && !(other instanceof KpngError));
  t.match(other, { code: 'ECONNREFUSED', message: 'connect ECONNREFUSED' });
  t.match(decodeError(encodeError(new TypeError('x'))), { name: 'TypeError', message: 'x' });
  t.match(decodeError(encodeError('thrown')), { message: 'thrown' });
  t.match(decodeError(encodeError(new Error('a', { cause: 'b' }))), { cause: { message: 'b' } });
  t.end();
});

t.test('a message without an error is carried as it is', (t) => {
  const message = { limit: 'max-connections', value: 3, reached: true };
  t.same(posted(message), message);
  t.end();
});
