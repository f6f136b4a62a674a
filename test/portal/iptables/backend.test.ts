import t from 'tap';
import { ExecError } from '../../../src/portal/exec.ts';
import { tryIptables } from '../../../src/portal/iptables/check.ts';
import type { Tools } from '../../../src/portal/iptables/tools.ts';
import { exits } from '../../support/fake-exec.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { IptablesRig } from '../../support/rule-rigs.ts';
import { wants } from '../../support/portals.ts';

const TOOLS: Tools = { name: 'iptables-nft', flavor: 'nft', version: '1.8.9' };

function many(count: number) {
  return Array.from({ length: count }, (_, n) =>
    wants(`d/s${n}`, `clusterIP 10.${n >> 8}.${n & 255}.1:80`),
  );
}

/** Scripts since the last call. */
function scriptsOf(rig: IptablesRig): () => readonly string[] {
  let seen = 0;
  return () => {
    const fresh = rig.iptables.scripts.slice(seen);
    seen += fresh.length;
    return fresh;
  };
}

t.test('packets of the canary do not have to pass the rules of all services', async (t) => {
  const key = '-p tcp -m tcp --dport 9 -d 127.200.0.1/32';
  const rig = new IptablesRig({
    canary: () => ({
      open: async () => [{ set: 'portals-host4', key, value: '39999' }],
      probe: async () => 'alive',
      close: () => undefined,
    }),
  });
  t.teardown(() => rig.portal.close());
  await rig.sync(many(3));
  t.match(rig.iptables.rules('KUBE-PORTALS-HOST')[0], '127.200.0.1');
});

t.test('many removals at once are written as a whole, as that costs less', async (t) => {
  const rig = new IptablesRig();
  t.teardown(() => rig.portal.close());
  const fresh = scriptsOf(rig);
  await rig.sync(many(400));
  fresh();
  await rig.sync([], ['d/s0']);
  t.match(fresh(), [/^-D KUBE-PORTALS-HOST/m], 'one of them is not');
  await rig.sync(
    [],
    many(300).map(({ servicePort }) => servicePort),
  );
  const [script = ''] = fresh();
  t.notMatch(script, /^-D KUBE/m);
  t.match(script, /^:KUBE-PORTALS-HOST - /m);
  t.notOk(rig.redirects('10.0.7.1'));
  t.ok(rig.redirects('10.1.100.1'));
});

t.test('but not if another process has taken the chains', async (t) => {
  const rig = new IptablesRig();
  t.teardown(() => rig.portal.close());
  await rig.sync(many(400));
  await rig.takeOver([wants('x/x', 'clusterIP 10.9.9.9:80')]);
  const all = many(400).map(({ servicePort }) => servicePort);
  await t.rejects(rig.sync([], all), { code: 'KPNG_PORTAL_TAKEN' });
  t.ok(rig.redirects('10.9.9.9'));
});

t.test('a family that fails does not keep the other from being written', async (t) => {
  const rig = new IptablesRig();
  t.teardown(() => rig.portal.close());
  rig.iptables.refuses = (line) => line.includes('icmp6');
  const services = [
    wants('d/v4', 'clusterIP 10.0.0.1:80'),
    wants('d/dns', 'clusterIP fd00::1:53/UDP'),
  ];
  await rig.sync(services);
  t.ok(rig.redirects('10.0.0.1'));
  t.notOk(rig.redirects('fd00::1'));
  t.match(rig.portal.plan([], []).problems, [{ servicePort: 'd/dns' }]);
  t.notMatch(rig.iptables.listing(4, 'nft') + rig.iptables.listing(6, 'nft'), /TRIAL/);
});

t.test('the legacy flavour reports why a table is missing only on a second call', async (t) => {
  const fake = new FakeIptables();
  const tools: Tools = { name: 'iptables-legacy', flavor: 'legacy', version: '1.8.9' };
  const vague = "iptables-restore: unable to initialize table 'nat'\n\nError occurred at line: 1\n";
  const clear =
    "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Permission denied (you must be root)\n";
  const usable = await tryIptables(
    (command) => {
      fake.broken = exits(vague, 2);
      if (command.args.includes('-S')) return Promise.reject(errorOf(command.file, clear));
      return fake.exec(command);
    },
    tools,
    [4],
  );
  t.strictSame(usable.families, []);
  t.match(usable.problems.get(4), { code: 'KPNG_PORTAL_PERMISSION', message: /you must be root/ });
});

function errorOf(file: string, stderr: string): ExecError {
  return new ExecError('exit', { file, args: [] }, { stderr, exitCode: 3 });
}

t.test('reports the families that iptables can write, and why not the others', async (t) => {
  const fake = new FakeIptables();
  t.match(await tryIptables(fake.exec, TOOLS, [4, 6]), { families: [4, 6] });
  for (const family of [4, 6] as const) t.notMatch(fake.listing(family), /KPNG|KUBE/);
  fake.refuses = (line) => line.includes('icmp6');
  const v4 = await tryIptables(fake.exec, TOOLS, [4, 6]);
  t.strictSame(v4.families, [4]);
  t.match(v4.problems.get(6), { code: 'KPNG_PORTAL_UNSUPPORTED', message: /icmp6/ });
  fake.missing.add('ip6tables-nft');
  const missing = await tryIptables(fake.exec, TOOLS, [4, 6]);
  t.match(missing.problems.get(6), { code: 'KPNG_PORTAL_TOOL_MISSING' });
});
