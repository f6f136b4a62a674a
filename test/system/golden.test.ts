import { globSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import t from 'tap';
import { systemExec } from '../../src/portal/exec.ts';
import { nftablesProblem } from '../../src/portal/nftables/backend.ts';
import { lab } from './support/lab.ts';

t.test('nft and the kernel take the texts that the unit tests compare with', async (t) => {
  const here = await lab(t);
  for (const path of globSync('test/portal/nftables/golden/*.nft')) {
    if (basename(path) === 'delta.nft') continue;
    await here.network.inside('node', 'nft', ['-f', '-'], readFileSync(path, 'utf8'));
    t.match(await here.ruleset(), /table inet kpng-userspace/, path);
  }
  const problem = await nftablesProblem(
    ({ file, args, ...rest }) => {
      const inside = ['netns', 'exec', here.network.namespace('node'), file, ...args];
      return systemExec({ ...rest, file: 'ip', args: inside });
    },
    [4, 6],
  );
  t.equal(problem, undefined);
});

t.test('says so when the process has no right to change rules', async (t) => {
  const here = await lab(t);
  const namespace = here.network.namespace('node');
  // The capabilities that are left do not include CAP_NET_ADMIN.
  const problem = await nftablesProblem(
    ({ file, args, ...rest }) => {
      const inside = [
        'netns',
        'exec',
        namespace,
        'setpriv',
        '--reuid',
        '65534',
        '--clear-groups',
        file,
      ];
      return systemExec({ ...rest, file: 'ip', args: [...inside, ...args] });
    },
    [4, 6],
  );
  t.match(problem, { code: 'KPNG_PORTAL_PERMISSION', message: /CAP_NET_ADMIN/ });
});
