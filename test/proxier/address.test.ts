import t from 'tap';
import { canonicalAddress, canonicalNetwork, isPort } from '../../src/proxier/address.ts';

t.test('one way to write each address', async (t) => {
  const cases: [string, string | undefined][] = [
    ['10.0.0.1', '10.0.0.1'],
    ['127.0.0.1', '127.0.0.1'],
    ['FD00:0:0::0001', 'fd00::1'],
    ['::1', '::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['0.0.0.0', undefined],
    ['::', undefined],
    ['0:0::0', undefined],
    ['::ffff:0.0.0.0', undefined],
    ['223.255.255.255', '223.255.255.255'],
    ['224.0.0.1', undefined],
    ['239.255.255.255', undefined],
    ['240.0.0.1', '240.0.0.1'],
    ['255.255.255.255', undefined],
    ['::ffff:224.0.0.1', undefined],
    ['ff02::1', undefined],
    ['FF0E:0::1', undefined],
    ['ff::1', 'ff::1'],
    ['fe80::1%eth0', undefined],
    ['10.0.0', undefined],
    ['10.0.0.256', undefined],
    ['010.0.0.1', undefined],
    ['nope', undefined],
    ['', undefined],
    ['[::1]', undefined],
  ];
  for (const [text, expected] of cases) t.equal(canonicalAddress(text), expected, text);
});

t.test('networks', async (t) => {
  t.equal(canonicalNetwork(' 10.0.0.0/8 '), '10.0.0.0/8');
  t.equal(canonicalNetwork('fd00::/64'), 'fd00::/64');
  for (const text of ['10.0.0.1', '10.0.0.0/33', 'nope', ''])
    t.equal(canonicalNetwork(text), undefined);
});

t.test('ports', async (t) => {
  t.same([1, 80, 65_535].map(isPort), [true, true, true]);
  t.same([0, -1, 65_536, 70_000, 1.5, Number.NaN].map(isPort), [
    false,
    false,
    false,
    false,
    false,
    false,
  ]);
});
