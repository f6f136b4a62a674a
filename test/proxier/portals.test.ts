import t from 'tap';
import { canonicalAddress, serviceAddresses } from '../../src/proxier/portals.ts';
import { ServiceProblems } from '../../src/proxier/service-limits.ts';
import { service } from '../support/messages.ts';

const both = (texts: readonly string[]) => ({
  v4: texts.filter((text) => !text.includes('::')),
  v6: texts.filter((text) => text.includes('::')),
});

/** The addresses of a service of these ones, and its problems. Filters: their ranges, and after `for` their targets. */
function read(lines: readonly string[], ...filters: readonly string[]) {
  const ips = lines.map((line) => line.split(' '));
  const problems = new ServiceProblems('d/web');
  const more = {
    ips: Object.fromEntries(ips.map(([kind, ...texts]) => [`${kind}s`, both(texts)])),
    ipFilters: filters.map((filter) => {
      const [ranges, targets] = filter.split(' for ').map((text) => text.split(','));
      return { sourceRanges: ranges?.filter(Boolean) ?? [], targetIPs: both(targets ?? []) };
    }),
  };
  const addresses = serviceAddresses(service('d/web', more), problems);
  return [
    ...addresses.map(({ kind, address, sourceRanges }) =>
      [kind, address, ...sourceRanges].join(' '),
    ),
    ...problems.list().map(({ code, message }) => `${code} ${message}`),
  ];
}

t.test('every kind of address, both families, each address once', async (t) => {
  const external = 'externalIP 192.0.2.1 10.0.0.1';
  const balancer = 'loadBalancerIP 192.0.2.1 192.0.2.2 fd00:0::1';
  t.same(read(['clusterIP 10.0.0.1 FD00::1', external, balancer]), [
    'clusterIP 10.0.0.1',
    'clusterIP fd00::1',
    'externalIP 192.0.2.1',
    'loadBalancerIP 192.0.2.2',
  ]);
});

t.test('what is not an address is reported and left out', async (t) => {
  const wrong = ['externalIP 0.0.0.0', 'loadBalancerIP fe80::1%eth0'];
  t.same(read(['clusterIP nope 10.0.0.1', ...wrong]), [
    'clusterIP 10.0.0.1',
    'KPNG_SERVICE_INVALID d/web: the cluster IP "nope" is not the address of a host',
    'KPNG_SERVICE_INVALID d/web: the external IP "0.0.0.0" is not the address of a host',
    'KPNG_SERVICE_INVALID d/web: the load-balancer IP "fe80::1%eth0" is not the address of a host',
  ]);
});

const all = ['clusterIP 10.0.0.1', 'externalIP 192.0.2.1', 'loadBalancerIP 192.0.2.2 192.0.2.3'];

t.test('V4 (kept): source ranges without targets are for the load-balancer IPs', async (t) => {
  t.same(read(all, '198.51.100.0/24, 192.0.2.0/24,198.51.100.0/24'), [
    ...all.slice(0, 2),
    'loadBalancerIP 192.0.2.2 192.0.2.0/24 198.51.100.0/24',
    'loadBalancerIP 192.0.2.3 192.0.2.0/24 198.51.100.0/24',
  ]);
});

t.test('source ranges with targets are for those only, and several filters add up', async (t) => {
  const two = ['10.0.0.0/8 for 192.0.2.1,192.0.2.3', '172.16.0.0/12 for 192.0.2.3'];
  t.same(read(all, ...two, ' for 192.0.2.2'), [
    'clusterIP 10.0.0.1',
    'externalIP 192.0.2.1 10.0.0.0/8',
    'loadBalancerIP 192.0.2.2',
    'loadBalancerIP 192.0.2.3 10.0.0.0/8 172.16.0.0/12',
  ]);
});

t.test('invalid ranges never open an address', async (t) => {
  t.same(read(all, '10.0.0.0/8,10.0.0.1 for 192.0.2.2', '10.0.0.0/33 for 192.0.2.3'), [
    ...all.slice(0, 2),
    'loadBalancerIP 192.0.2.2 10.0.0.0/8',
    'KPNG_SERVICE_INVALID d/web: the source range "10.0.0.1" is not a network such as 192.0.2.0/24',
    'KPNG_SERVICE_INVALID d/web: the source range "10.0.0.0/33" is not a network such as 192.0.2.0/24',
    'KPNG_SERVICE_INVALID d/web: the load-balancer IP 192.0.2.3 stays closed: none of its source ranges is a network',
  ]);
});

t.test('one way to write each address', async (t) => {
  for (const [text, expected] of [
    ['FD00:0:0::0001', 'fd00::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
  ] as const) {
    t.equal(canonicalAddress(text), expected);
  }
  for (const text of ['127.0.0.1', '::1', '223.255.255.255', '240.0.0.1', 'ff::1']) {
    t.equal(canonicalAddress(text), text);
  }
  const unusable = ['0.0.0.0', '::', '0:0::0', '::ffff:0.0.0.0', '::1.2.3.4', '::102:304'];
  const multicast = ['224.0.0.1', '239.255.255.255', '255.255.255.255', '::ffff:224.0.0.1'];
  multicast.push('ff02::1', 'FF0E:0::1');
  const invalid = ['fe80::1%eth0', '10.0.0', '10.0.0.256', '010.0.0.1', 'nope', '', '[::1]'];
  for (const text of [...unusable, ...multicast, ...invalid]) {
    t.equal(canonicalAddress(text), undefined, text);
  }
});
