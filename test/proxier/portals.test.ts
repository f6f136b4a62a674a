import t from 'tap';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import { serviceAddresses } from '../../src/proxier/portals.ts';
import { ServiceProblems } from '../../src/proxier/service-limits.ts';
import { service } from '../support/messages.ts';

function read(more: DeepPartial<Service>) {
  const problems = new ServiceProblems('d/web');
  const addresses = serviceAddresses(service('d/web', more), problems);
  return {
    addresses: addresses.map(({ kind, address, sourceRanges }) =>
      [kind, address, ...sourceRanges].join(' '),
    ),
    problems: problems.list().map(({ code, message }) => `${code} ${message}`),
  };
}

t.test('every kind of address, both families, each address once', async (t) => {
  const { addresses, problems } = read({
    ips: {
      clusterIPs: { v4: ['10.0.0.1'], v6: ['FD00::1'] },
      externalIPs: { v4: ['192.0.2.1', '10.0.0.1'] },
      loadBalancerIPs: { v4: ['192.0.2.1', '192.0.2.2'], v6: ['fd00:0::1'] },
    },
  });
  t.same(addresses, [
    'clusterIP 10.0.0.1',
    'clusterIP fd00::1',
    'externalIP 192.0.2.1',
    'loadBalancerIP 192.0.2.2',
  ]);
  t.same(problems, []);
});

t.test('what is not an address is reported and left out', async (t) => {
  const { addresses, problems } = read({
    ips: {
      clusterIPs: { v4: ['nope', '10.0.0.1'] },
      externalIPs: { v4: ['0.0.0.0'] },
      loadBalancerIPs: { v6: ['fe80::1%eth0'] },
    },
  });
  t.same(addresses, ['clusterIP 10.0.0.1']);
  t.same(problems, [
    'KPNG_SERVICE_INVALID d/web: the cluster IP "nope" is not the address of a host',
    'KPNG_SERVICE_INVALID d/web: the external IP "0.0.0.0" is not the address of a host',
    'KPNG_SERVICE_INVALID d/web: the load-balancer IP "fe80::1%eth0" is not the address of a host',
  ]);
});

const ips = {
  clusterIPs: { v4: ['10.0.0.1'] },
  externalIPs: { v4: ['192.0.2.1'] },
  loadBalancerIPs: { v4: ['192.0.2.2', '192.0.2.3'] },
};

t.test('V4 (kept): source ranges without targets are for the load-balancer IPs', async (t) => {
  const { addresses } = read({
    ips,
    ipFilters: [{ sourceRanges: ['198.51.100.0/24', ' 192.0.2.0/24', '198.51.100.0/24'] }],
  });
  t.same(addresses, [
    'clusterIP 10.0.0.1',
    'externalIP 192.0.2.1',
    'loadBalancerIP 192.0.2.2 192.0.2.0/24 198.51.100.0/24',
    'loadBalancerIP 192.0.2.3 192.0.2.0/24 198.51.100.0/24',
  ]);
});

t.test('source ranges with targets are for those only, and several filters add up', async (t) => {
  const { addresses } = read({
    ips,
    ipFilters: [
      { targetIPs: { v4: ['192.0.2.1', '192.0.2.3'] }, sourceRanges: ['10.0.0.0/8'] },
      { targetIPs: { v4: ['192.0.2.3'] }, sourceRanges: ['172.16.0.0/12'] },
      { targetIPs: { v4: ['192.0.2.2'] }, sourceRanges: [] },
    ],
  });
  t.same(addresses, [
    'clusterIP 10.0.0.1',
    'externalIP 192.0.2.1 10.0.0.0/8',
    'loadBalancerIP 192.0.2.2',
    'loadBalancerIP 192.0.2.3 10.0.0.0/8 172.16.0.0/12',
  ]);
});

t.test('invalid ranges never open an address', async (t) => {
  const part = read({ ips, ipFilters: [{ sourceRanges: ['10.0.0.0/8', '10.0.0.1'] }] });
  t.equal(part.addresses[2], 'loadBalancerIP 192.0.2.2 10.0.0.0/8');
  t.same(part.problems, [
    'KPNG_SERVICE_INVALID d/web: the source range "10.0.0.1" is not a network such as 192.0.2.0/24',
  ]);
  const none = read({ ips, ipFilters: [{ sourceRanges: ['10.0.0.0/33'] }] });
  t.same(none.addresses, ['clusterIP 10.0.0.1', 'externalIP 192.0.2.1']);
  t.match(none.problems, [
    /"10\.0\.0\.0\/33"/,
    /load-balancer IP 192\.0\.2\.2 stays closed/,
    /192\.0\.2\.3 stays closed/,
  ]);
});
