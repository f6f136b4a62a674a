import t from 'tap';
import { ProcessDescriptors } from '../../../src/proxysocket/core/descriptors.ts';
import { addressText, clientAddress } from '../../../src/proxysocket/tcp/publish.ts';
import { connectErrorCause } from '../../../src/proxysocket/tcp/attempts.ts';
import { ConnectionGate } from '../../../src/proxysocket/tcp/shared.ts';

t.test('ConnectionGate: lets in as many as may be, and tells when all have left', async (t) => {
  const descriptors = new ProcessDescriptors({ limit: 100, reserve: 0 });
  const gate = new ConnectionGate({ maxConnections: 2 }, descriptors);
  await gate.empty();
  t.same([gate.enter(), gate.enter(), gate.enter()], [true, true, false]);
  t.equal(descriptors.used, 4, 'a connection that is refused holds nothing');
  let empty = false;
  const waiting = gate.empty().then(() => (empty = true));
  gate.leave();
  await new Promise(setImmediate);
  t.equal(empty, false);
  gate.leave();
  await waiting;
  t.equal(descriptors.used, 0);
  const few = new ConnectionGate(
    { maxConnections: 2 },
    new ProcessDescriptors({ limit: 1, reserve: 0 }),
  );
  t.equal(few.enter(), false);
  t.equal(few.inside, 0);
});

t.test('causes of failed connects', (t) => {
  const causes = ['ECONNREFUSED', 'ETIMEDOUT', 'EHOSTUNREACH', 'EMFILE', 'EADDRNOTAVAIL', 'EINVAL'];
  t.same(
    causes.map((code) => connectErrorCause(Object.assign(new Error(code), { code }))),
    ['refused', 'timeout', 'unreachable', 'limit', 'limit', 'other'],
  );
  t.equal(connectErrorCause(new Error('no code')), 'other');
  t.end();
});

t.test('addresses as affinity and events take them', (t) => {
  t.equal(clientAddress({ address: '::ffff:10.0.0.1' }), '10.0.0.1');
  t.equal(clientAddress({ address: '10.0.0.1' }), '10.0.0.1');
  t.equal(clientAddress({ address: '::ffff:1' }), '::ffff:1');
  t.equal(clientAddress({}), '');
  t.equal(addressText({ address: 'fd00::1', port: 80 }), '[fd00::1]:80');
  t.equal(addressText({ address: '10.0.0.1', port: 80 }), '10.0.0.1:80');
  t.equal(addressText({}), '');
  t.end();
});
