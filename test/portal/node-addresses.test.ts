import t from 'tap';
import { dependsOnHost, nodePortAddresses } from '../../src/portal/node-addresses.ts';

const host = [
  { address: '127.0.0.1', loopback: true },
  { address: '::1', loopback: true },
  { address: 'fe80::5', loopback: false },
  { address: '192.0.2.7', loopback: false },
  { address: '2001:db8::7', loopback: false },
  { address: '198.51.100.7', loopback: false },
];
const only4 = host.filter(({ address }) => !address.includes(':'));

t.test('words, networks and addresses', async (t) => {
  const cases: [string[], string[]][] = [
    [[], ['0.0.0.0', '::']],
    [['all'], ['0.0.0.0', '::']],
    [['localhost'], ['127.0.0.1', '::1']],
    [['primary'], ['192.0.2.7', '2001:db8::7']],
    [['192.0.2.0/24'], ['192.0.2.7']],
    [['0.0.0.0/0'], ['127.0.0.1', '192.0.2.7', '198.51.100.7']],
    [['2001:db8::/32', '10.0.0.0/8'], ['2001:db8::7']],
    [
      ['203.0.113.1', '2001:DB8:0::1'],
      ['203.0.113.1', '2001:db8::1'],
    ],
    [
      ['localhost', '127.0.0.0/8'],
      ['127.0.0.1', '::1'],
    ],
    [
      ['0.0.0.0', '192.0.2.7', '::1'],
      ['0.0.0.0', '::1'],
    ],
  ];
  for (const [wanted, expected] of cases) {
    t.same(nodePortAddresses(wanted, host).sort(), expected.sort(), wanted.join() || 'nothing');
  }
});

t.test('a host without IPv6 gets none', async (t) => {
  t.same(nodePortAddresses([], only4), ['0.0.0.0']);
  t.same(nodePortAddresses(['localhost', 'primary'], only4), ['127.0.0.1', '192.0.2.7']);
});

t.test('what is neither is refused by name', async (t) => {
  t.throws(() => nodePortAddresses(['10.0.0.0/8', 'eth0'], host), { message: /"eth0"/ });
});

t.test('only networks and words need a look at the host', async (t) => {
  t.notOk(dependsOnHost([]));
  t.notOk(dependsOnHost(['all', '192.0.2.1']));
  t.ok(dependsOnHost(['primary']));
  t.ok(dependsOnHost(['192.0.2.1', '10.0.0.0/8']));
});
