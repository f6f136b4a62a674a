import t from 'tap';
import {
  findRules,
  renderDelta,
  renderFull,
  renderTrial,
  type RuleContext,
} from '../../../src/portal/iptables/script.ts';
import { rulesOf } from '../../../src/portal/iptables/translate.ts';
import type { Redirect } from '../../../src/portal/redirect-plan.ts';
import type { RuleConfig } from '../../../src/portal/rules/backend.ts';
import { elementsOf, isGolden, portal, update } from '../../support/portals.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.168.1.5', 6: 'fd00::1' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['fd00::/8', '2001:db8::/32'] },
};
const V4: RuleContext = { prefix: 'KUBE', family: 4, config: CONFIG };
const NOTHING = findRules('KUBE', '');

function lead(family: 4 | 6, text: string, proxyPort: number | undefined, ranges: string[] = []) {
  return { family, portal: portal(text, ranges), proxyPort } satisfies Redirect;
}

t.test('P2: the worked example of kube-proxy’s userspace mode', (t) => {
  const example = elementsOf(
    ...rulesOf(
      'default/web:http',
      [lead(4, 'clusterIP 10.0.0.10:80', 41_234), lead(4, 'nodePort 30080', 41_234)],
      [],
    ),
  );
  isGolden(t, renderDelta(V4, example.changes()), 'iptables/golden/example.v4');
  const loopback: RuleConfig = { ...CONFIG, targets: { 4: undefined, 6: undefined } };
  t.match(
    renderDelta({ ...V4, config: loopback }, example.changes()),
    /^-A KUBE-PORTALS-CONTAINER .* -j REDIRECT --to-ports 41234$/m,
    'on a host with only loopback addresses',
  );
  t.end();
});

t.test('comments are plain, and not too long', (t) => {
  const name = `d/"${'ü'.repeat(300)}\\\n`;
  const rules = rulesOf(name, [lead(4, 'nodePort 30080', undefined)], []);
  const comment = /--comment "([^"]*)" -p/.exec(rules[0]?.key ?? '')?.[1] ?? '';
  t.match(comment, /^d\/\?+$/);
  t.equal(comment.length, 255);
  t.end();
});

/** The same in both families, but for the ranges of clients. */
const services = (family: 4 | 6) => {
  const some = ['198.51.100.0/24', '2001:db8::/32'];
  const at = (text: string, proxyPort: number | undefined, ranges: string[] = []) =>
    lead(family, text, proxyPort, ranges);
  return elementsOf(
    ...rulesOf(
      'default/web:http',
      [
        at('clusterIP 10.0.0.1:80', 40_001),
        at('loadBalancerIP 203.0.113.7:443', 40_002, some),
        at('nodePort 30080', 40_002),
        { ...at('externalIP 203.0.113.7:81', undefined), drops: true },
        { ...at('externalIP 203.0.113.7:82', 40_002, some), drops: true },
        { ...at('nodePort 30081', 40_002), drops: true },
      ],
      [
        { family, protocol: 'TCP', port: 40_001 },
        { family, protocol: 'TCP', port: 40_002 },
      ],
    ),
    ...rulesOf(
      'default/dns',
      [
        at('clusterIP 10.0.0.1:53/UDP', undefined),
        at('loadBalancerIP 203.0.113.7:53/UDP', undefined, some),
        at('nodePort 30053/UDP', undefined),
      ],
      [{ family, protocol: 'UDP', port: 40_003 }],
    ),
  );
};

t.test('P4, P5: writes everything on a clean host, and the same in both families', (t) => {
  isGolden(t, renderFull(V4, services(4), NOTHING), 'iptables/golden/full.v4');
  const config = { ...CONFIG, nodePortNetworks: { 4: ['198.51.100.0/24'], 6: ['2001:db8::/32'] } };
  const v6 = renderFull({ ...V4, family: 6, config }, services(6), NOTHING);
  const asV4 = v6
    .replaceAll('2001:db8::/32', '198.51.100.0/24')
    .replaceAll('[fd00::1]:', '192.168.1.5:')
    .replaceAll('icmp6-', 'icmp-');
  t.equal(asV4, renderFull({ ...V4, config }, services(4), NOTHING));
  t.end();
});

t.test('differences: rejects first and last, and only in the owner’s chains', (t) => {
  const ledger = services(4);
  ledger.written();
  const dns = (proxyPort: number | undefined) =>
    rulesOf('default/dns', [lead(4, 'clusterIP 10.0.0.1:53/UDP', proxyPort)], []);
  update(ledger, dns(undefined), dns(40_003));
  update(ledger, [], rulesOf('default/new', [lead(4, 'clusterIP 10.0.0.9:80', undefined)], []));
  isGolden(t, renderDelta(V4, ledger.changes()), 'iptables/golden/delta.v4');
  t.end();
});

t.test('a trial has the kernel take all rules, and leaves nothing', async (t) => {
  const fake = new FakeIptables();
  const seen: string[] = [];
  fake.refuses = (line) => {
    seen.push(line);
    return false;
  };
  const stdin = renderTrial(V4, services(4));
  await fake.exec({ file: 'iptables-nft-restore', args: ['--noflush'], stdin });
  t.notMatch(fake.listing(4, 'nft'), /K(?:UBE|PNG)-/);
  t.notMatch(stdin, /KUBE-(?!TRIAL)/, 'chains that are in use are not touched');
  const full = renderFull(V4, services(4), NOTHING);
  for (const [, rule = ''] of full.matchAll(/^-A KUBE-\S+ (.*)$/gm)) {
    if (!seen.includes(`-A KPNG-KUBE-TRIAL ${rule}`)) t.fail(rule);
  }
  fake.refuses = (line) => line.includes('40002');
  await t.rejects(fake.exec({ file: 'iptables-nft-restore', args: ['--noflush'], stdin }));
  t.notMatch(fake.listing(4, 'nft'), /K(?:UBE|PNG)-/);
});
