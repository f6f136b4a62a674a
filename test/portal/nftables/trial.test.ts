import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { hostChains } from '../../../src/portal/nftables/backend.ts';
import { conflictingSetting } from '../../../src/portal/nftables/trial.ts';

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
