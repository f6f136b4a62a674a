import { networkInterfaces } from 'node:os';
import t from 'tap';
import { familyOf } from '../../src/util/family.ts';
import { hostAddresses } from '../../src/util/host-addresses.ts';

t.test('the addresses of this host', async (t) => {
  const expected = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  t.same(
    hostAddresses().map(({ address }) => address),
    expected.map(({ address }) => address),
  );
});

t.test('a sandbox that does not let the interfaces be read has no addresses', async (t) => {
  const fail = (code: string) => () => {
    throw Object.assign(new Error('uv_interface_addresses'), { code });
  };
  t.same(hostAddresses(fail('ERR_SYSTEM_ERROR')), []);
  t.throws(() => hostAddresses(fail('ERR_OTHER')), { code: 'ERR_OTHER' });
});

t.test('the family of an address', async (t) => {
  t.equal(familyOf('192.0.2.1'), 4);
  t.equal(familyOf('::ffff:192.0.2.1'), 6);
});
