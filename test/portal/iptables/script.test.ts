import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { type RuleContext } from '../../../src/portal/iptables/chains.ts';
import {
  findRules,
  renderDelta,
  renderFull,
  renderTrial,
} from '../../../src/portal/iptables/script.ts';
import { rulesOf } from '../../../src/portal/iptables/translate.ts';
import type { Redirect } from '../../../src/portal/redirect-plan.ts';
import type { Element, RuleConfig } from '../../../src/portal/rules/backend.ts';
import { elementsOf, portal, update } from '../../support/portals.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.168.1.5', 6: 'fd00::1' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['fd00::/8', '2001:db8::/32'] },
};
const V4: RuleContext = { prefix: 'KUBE', family: 4, config: CONFIG };
const V6: RuleContext = { ...V4, family: 6 };
const NOTHING = findRules('KUBE', '');

/** With UPDATE_GOLDEN=1 the files are rewritten. */
function golden(name: string, text: string): string {
  const path = join(import.meta.dirname, 'golden', name);
  if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(path, text);
  return readFileSync(path, 'utf8');
}

function lead(family: 4 | 6, text: string, proxyPort: number | undefined, ranges: string[] = []) {
  return { family, portal: portal(text, ranges), proxyPort } satisfies Redirect;
}

/** Rules of one chain, in the form in which they are written. */
function linesOf(place: RuleContext, rules: Element[]): string[] {
  const script = renderDelta(place, elementsOf(...rules).changes());
  return script.split('\n').filter((line) => /^-[AI] /.test(line));
}

t.test('P2: the worked example of kube-proxy’s userspace mode', (t) => {
  const rules = rulesOf(
    'default/web:http',
    [lead(4, 'clusterIP 10.0.0.10:80', 41_234), lead(4, 'nodePort 30080', 41_234)],
    [],
  );
  const http = '-m comment --comment "default/web:http" -p tcp -m tcp --dport';
  const to = '-j DNAT --to-destination 192.168.1.5:41234';
  t.strictSame(linesOf(V4, rules), [
    `-A KUBE-NODEPORT-NON-LOCAL ${http} 41234 -m state --state NEW -j ACCEPT`,
    `-A KUBE-PORTALS-CONTAINER ${http} 80 -d 10.0.0.10/32 ${to}`,
    `-A KUBE-PORTALS-HOST ${http} 80 -d 10.0.0.10/32 ${to}`,
    `-A KUBE-NODEPORT-CONTAINER ${http} 30080 ${to}`,
    `-A KUBE-NODEPORT-HOST ${http} 30080 ${to}`,
  ]);
  const loopback: RuleConfig = { ...CONFIG, targets: { 4: undefined, 6: undefined } };
  t.match(
    linesOf({ ...V4, config: loopback }, rules)[1],
    /^-A KUBE-PORTALS-CONTAINER .* -j REDIRECT --to-ports 41234$/,
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

const SERVICES = (family: 4 | 6) => {
  const v6 = family === 6;
  const cluster = v6 ? 'fd00:10::1' : '10.0.0.1';
  const balancer = v6 ? '2001:db8:f::7' : '203.0.113.7';
  const range = v6 ? '2001:db8::/32' : '198.51.100.0/24';
  return elementsOf(
    ...rulesOf(
      'default/web:http',
      [
        lead(family, `clusterIP ${cluster}:80`, 40_001),
        lead(family, `loadBalancerIP ${balancer}:443`, 40_002, [range]),
        lead(family, 'nodePort 30080', 40_002),
      ],
      [
        { family, protocol: 'TCP', port: 40_001 },
        { family, protocol: 'TCP', port: 40_002 },
      ],
    ),
    ...rulesOf(
      'default/dns',
      [
        lead(family, `clusterIP ${cluster}:53/UDP`, undefined),
        lead(family, `loadBalancerIP ${balancer}:53/UDP`, undefined, [range]),
        lead(family, 'nodePort 30053/UDP', undefined),
      ],
      [{ family, protocol: 'UDP', port: 40_003 }],
    ),
  );
};

t.test('P4, P5: writes everything on a clean host, and the same in both families', (t) => {
  const v4 = renderFull(V4, SERVICES(4), NOTHING, false);
  t.equal(v4, golden('full.v4', v4));
  const everywhere = { ...CONFIG, nodePortNetworks: { 4: [], 6: ['::/0'] } };
  let v6 = renderFull({ ...V6, config: everywhere }, SERVICES(6), NOTHING, false);
  for (const [six, four] of [
    ['fd00:10::1/128', '10.0.0.1/32'],
    ['2001:db8:f::7/128', '203.0.113.7/32'],
    ['2001:db8::/32', '198.51.100.0/24'],
    ['[fd00::1]', '192.168.1.5'],
    ['icmp6-port', 'icmp-port'],
  ] as const) {
    t.match(v6, six);
    v6 = v6.replaceAll(six, four);
  }
  t.equal(v6, v4);
  t.match(
    renderFull(V6, SERVICES(6), NOTHING, false),
    /-A PREROUTING -d fd00::\/8 -m addrtype .*\n-A PREROUTING -d 2001:db8::\/32 -m addrtype /,
    'node ports of some networks only',
  );
  t.end();
});

t.test('differences: rejects first and last, and only in the owner’s chains', (t) => {
  const ledger = SERVICES(4);
  ledger.written();
  const dns = (proxyPort: number | undefined) =>
    rulesOf('default/dns', [lead(4, 'clusterIP 10.0.0.1:53/UDP', proxyPort)], []);
  update(ledger, dns(undefined), dns(40_003));
  update(ledger, [], rulesOf('default/new', [lead(4, 'clusterIP 10.0.0.9:80', undefined)], []));
  const script = renderDelta(V4, ledger.changes());
  t.equal(script, golden('delta.v4', script));
  t.end();
});

t.test('a trial has the kernel take all rules, and leaves nothing', async (t) => {
  const fake = new FakeIptables();
  const seen: string[] = [];
  fake.refuses = (line) => {
    seen.push(line);
    return false;
  };
  const stdin = renderTrial(V4, SERVICES(4));
  await fake.exec({ file: 'iptables-nft-restore', args: ['--noflush'], stdin });
  t.notMatch(fake.listing(4, 'nft'), /K(?:UBE|PNG)-/);
  t.notMatch(stdin, /KUBE-(?!TRIAL)/, 'chains that are in use are not touched');
  const full = renderFull(V4, SERVICES(4), NOTHING, false);
  for (const [, rule = ''] of full.matchAll(/^-A KUBE-\S+ (.*)$/gm)) {
    if (!seen.includes(`-A KPNG-KUBE-TRIAL ${rule}`)) t.fail(rule);
  }
  fake.refuses = (line) => line.includes('40002');
  await t.rejects(fake.exec({ file: 'iptables-nft-restore', args: ['--noflush'], stdin }));
  t.notMatch(fake.listing(4, 'nft'), /K(?:UBE|PNG)-/);
});
