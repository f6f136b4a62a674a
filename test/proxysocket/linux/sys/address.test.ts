import * as fc from 'fast-check';
import { SocketAddress } from 'node:net';
import { networkInterfaces } from 'node:os';
import t from 'tap';
import { readSockaddr, writeSockaddr } from '../../../../src/proxysocket/linux/sys/address.ts';
import { holds } from '../../../support/property.ts';

function roundTrip(address: string, port = 80): string | undefined {
  const view = new DataView(new ArrayBuffer(32));
  writeSockaddr(view, 0, { address, port });
  const read = readSockaddr(view, 0);
  return read?.port === port ? read.address : undefined;
}

function bytes(address: string, port: number): string {
  const view = new DataView(new ArrayBuffer(32));
  const length = writeSockaddr(view, 0, { address, port });
  return Buffer.from(view.buffer, 0, length).toString('hex');
}

t.test('a sockaddr is laid out as the kernel wants it', (t) => {
  t.equal(bytes('127.0.0.1', 0x1234), '020012347f0000010000000000000000');
  t.equal(bytes('::1', 443), `0a0001bb00000000${'0'.repeat(30)}0100000000`);
  t.equal(
    bytes('2001:db8::ffff:10.1.2.3', 1),
    '0a0000010000000020010db8000000000000ffff0a01020300000000',
  );
  t.end();
});

t.test('IPv6 addresses are written in their shortest form', (t) => {
  for (const [long, short] of [
    ['0:0:0:0:0:0:0:0', '::'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['1:0:0:0:0:0:0:0', '1::'],
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['2001:0:0:1:0:0:0:1', '2001:0:0:1::1'],
    ['2001:DB8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['::ffff:1.2.3.4', '::ffff:1.2.3.4'],
    ['::ffff:102:304', '::ffff:1.2.3.4'],
  ] as const) {
    t.equal(roundTrip(long), short);
  }
  t.end();
});

t.test('every address comes back as Node would write it', (t) => {
  const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }));
  const groups = fc.array(group, { minLength: 8, maxLength: 8 });
  const port = fc.integer({ min: 0, max: 0xffff });
  holds(
    t,
    fc.property(groups, port, (groups, port) => {
      const address = groups.map((each) => each.toString(16)).join(':');
      const { address: expected } = new SocketAddress({ address, family: 'ipv6' });
      return roundTrip(address, port) === expected;
    }),
  );
  holds(
    t,
    fc.property(fc.ipV4(), (address) => roundTrip(address) === address),
  );
  t.end();
});

t.test('what is no address is refused', (t) => {
  for (const address of [
    '',
    'localhost',
    '1.2.3',
    '1.2.3.4.5',
    ':::',
    '::1/128',
    '[::1]',
    '%eth0',
  ]) {
    t.throws(() => roundTrip(address), RangeError, JSON.stringify(address));
  }
  t.throws(() => roundTrip('fe80::1%no-such-interface'), /no-such-interface/);
  t.equal(readSockaddr(new DataView(new ArrayBuffer(32)), 0), undefined);
  t.end();
});

t.test('a link-local address keeps its zone', (t) => {
  t.equal(roundTrip('fe80::1'), 'fe80::1');
  t.equal(roundTrip('fe80::1%4000000'), 'fe80::1%4000000', 'nobody has that many interfaces');
  for (const [name, addresses = []] of Object.entries(networkInterfaces())) {
    const own = addresses.find((each) => each.family === 'IPv6' && each.scopeid > 0);
    if (own !== undefined) t.equal(roundTrip(`fe80::1%${name}`), `fe80::1%${name}`);
  }
  t.equal(roundTrip('2001:db8::1%1'), '2001:db8::1', 'others need none');
  t.end();
});
