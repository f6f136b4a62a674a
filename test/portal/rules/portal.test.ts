import { once } from 'node:events';
import { CONTENT, testRules } from '../../support/rule-rigs.ts';
import { listening, wants } from '../../support/portals.ts';

const web = wants(
  'default/web:http',
  'clusterIP 10.0.0.1:80',
  'externalIP 203.0.113.1:80',
  'nodePort 30080',
);

testRules('writes only what differs, or nothing', async (t, make) => {
  let opened = 0;
  const open = async () => {
    opened += 1;
    return [{ set: 'services4', key: '127.200.0.1 . tcp . 9', value: '39999' }];
  };
  const rig = make({ canary: () => ({ ...CONTENT, open }) });
  await rig.sync([web]);
  t.match(rig.nft.scripts[0], /services4 \{\n127\./, 'it passes no rule of services');
  const runs = rig.runs;
  await rig.sync([web]);
  t.equal(rig.runs, runs);
  await rig.sync([wants('default/db', 'clusterIP 10.0.0.9:5432')]);
  t.equal(rig.runs, runs + 1);
  const script = rig.nft.scripts.at(-1) ?? '';
  t.match(script, '10.0.0.9');
  t.notMatch(script, '10.0.0.1');
  t.ok(script.split('\n').length < 20, script);
  t.equal(opened, 1);
});

testRules('listens on one address on request, and sends packets there', async (t, make) => {
  const rig = make({ bindAddress: '192.0.2.5' });
  const plan = await rig.sync([wants('a/a', 'clusterIP 10.0.0.1:80', 'clusterIP fd00::1:80')]);
  t.strictSame(listening(plan), { 'a/a': ['192.0.2.5:0 internal', ':::0 internal'] });
  t.match(rig.nft.scripts[0], /dnat ip to 192\.0\.2\.5 :/);
  t.throws(() => make({ bindAddress: '127.0.0.1' }), { code: 'KPNG_USAGE' });
  t.throws(() => make({ nodePortAddresses: ['x'] }), RangeError);
});

testRules('reports portals that it cannot serve, and serves the others', async (t, make) => {
  const rig = make();
  rig.host = [{ address: '127.0.0.1', loopback: true }];
  const v4 = make({ interfaces: () => rig.host });
  const code = 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE';
  const message = 'a/a cannot have [fd00::1]:80/TCP: the host does not have that address family';
  const faulty = ['clusterIP fd00::1:80', 'clusterIP fd00::2:80'];
  for (const added of [wants('a/a', 'clusterIP 10.0.0.1:80', ...faulty), wants('b/b')]) {
    await v4.sync([added]);
    t.strictSame(v4.portal.problems(), [{ servicePort: 'a/a', code, message, count: 2 }]);
  }
  t.match(v4.lands('10.0.0.1:80'), /proxy port/);
  t.match(v4.nft.scripts[0], /redirect to :/, 'a host with only loopback addresses');
  t.notMatch(v4.nft.scripts[0], /services6|ip6/, 'a host without IPv6');
  await v4.sync([wants('a/a', 'clusterIP 10.0.0.1:80')]);
  t.strictSame(v4.portal.problems(), []);
});

testRules('closing the portal aborts the work after the first write', async (t, make) => {
  let begun = false;
  const afterStart = async (signal: AbortSignal): Promise<void> => {
    begun = true;
    await once(signal, 'abort');
  };
  const rig = make({ afterStart });
  await rig.sync([]);
  t.equal(begun, true);
  await rig.portal.close();
  t.pass('it does not wait for what never ends by itself');
});
