import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { hostChains } from '../../../src/portal/nftables/backend.ts';
import { DEFAULT_ROUTE } from '../../../src/portal/nftables/policy-route.ts';
import { conflictingSetting, tryTransparent } from '../../../src/portal/nftables/trial.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';
import { linuxTest, newSys } from '../../support/linux-sys.ts';

t.test('a setting that keeps packets from transparent sockets is named', async (t) => {
  const root = t.testdir();
  const set = (name: string, value: 0 | 1): void => {
    const folder = join(root, 'proc/sys/net/ipv4/conf', name);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'src_valid_mark'), `${value}\n`);
  };
  set('all', 1);
  set('eth0.7', 1);
  t.match(conflictingSetting(root), /net\.ipv4\.conf\.all\.src_valid_mark to 0/);
  set('all', 0);
  t.match(conflictingSetting(root), /net\.ipv4\.conf\.eth0\/7\.src_valid_mark to 0/);
  set('eth0.7', 0);
  set('lo', 1);
  t.equal(conflictingSetting(root), undefined, 'the host itself');
});

linuxTest('the route and rule of a process with another mark stay', async (t) => {
  const old = { priority: 40, fwmark: '0x80', fwmask: '0x80', table: '10040', protocol: '78' };
  const route = { type: 'local', dst: 'default', dev: 'lo', protocol: '78' };
  const { exec, commands } = new FakeExec(({ file, args }) => {
    if (file === 'nft') return exits('not today');
    return {
      stdout: args.includes('-j') ? `${JSON.stringify([old])}\n${JSON.stringify([route])}` : '',
    };
  });
  const sys = newSys();
  const given = { route: DEFAULT_ROUTE, socket: async () => sys.stream(4) };
  await t.rejects(tryTransparent(exec, 'kpng', [4], given), /not today/);
  const rule = 'fwmark 0x40/0x40 lookup 10040 priority 40 protocol 78\n';
  const written = commands.filter(({ file, args }) => file === 'ip' && !args.includes('-j'));
  t.same(
    written.map(({ stdin }) => stdin),
    [`rule add ${rule}`, `rule delete ${rule}`],
  );
});

t.test('the hooks of chains are found, also behind comments', async (t) => {
  const stdout = `table inet fw {
\tcomment "of the host"
\tchain in {
\t\tcomment "a hook input "
\t\ttype filter hook input priority filter; policy drop;
\t}
\tchain other {
\t}
}
table ip mangle {
\tchain pre {
\t\ttype filter hook prerouting priority mangle; policy accept;
\t}
}
`;
  const inet = { table: 'inet fw', hook: undefined, policy: undefined };
  t.same(await hostChains(async () => ({ stdout, stderr: '' })), [
    { ...inet, name: 'in', hook: 'input', policy: 'drop' },
    { ...inet, name: 'other' },
    { table: 'ip mangle', name: 'pre', hook: 'prerouting', policy: 'accept' },
  ]);
});
