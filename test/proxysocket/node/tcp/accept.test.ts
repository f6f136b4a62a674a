import { once } from 'node:events';
import { createServer } from 'node:net';
import t from 'tap';
import {
  acceptWithOnread,
  canAcceptWithOnread,
} from '../../../../src/proxysocket/node/tcp/accept.ts';

t.test('this Node accepts sockets that read into buffers of ours', async (t) => {
  t.equal(await canAcceptWithOnread(), true);
});

t.test('where it does not, nothing is changed', async (t) => {
  const server = createServer();
  const accepted = (): void => undefined;
  t.equal(acceptWithOnread(server, 1000, accepted), false, 'it does not listen: no handle');
  const strange = Object.assign(createServer(), { _handle: { setNoDelay: () => 0 } });
  t.equal(acceptWithOnread(strange, 1000, accepted), false);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.equal(acceptWithOnread(server, 1000, accepted), true);
  server.close();
});
