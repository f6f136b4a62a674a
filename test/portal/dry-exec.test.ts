import { networkInterfaces } from 'node:os';
import t from 'tap';
import { dryExec, shellText } from '../../src/portal/exec.ts';
import { linuxInterface } from '../../src/portal/interface/linux.ts';

t.test('prints commands as a shell takes them', async (t) => {
  t.equal(shellText({ file: 'nft', args: ['list', 'tables'] }), 'nft list tables\n');
  t.equal(
    shellText({ file: 'nft', args: ['-f', '-'], stdin: 'a\nb' }),
    "nft -f - <<'EOF'\na\nb\nEOF\n",
  );
  t.equal(shellText({ file: 'x', args: ["it's"], stdin: '' }), `x 'it'\\''s' <<'EOF'\nEOF\n`);
});

t.test('programs that are not there succeed, and nothing is run', async (t) => {
  const printed: string[] = [];
  const exec = dryExec(async (text) => void printed.push(text));
  t.same(await exec({ file: 'no-such-program', args: ['x'] }), { stdout: '', stderr: '' });
  t.same(printed, ['no-such-program x\n']);
});

t.test(
  'knows the addresses and interfaces of the host, and those it would have made',
  async (t) => {
    const printed: string[] = [];
    const exec = dryExec(async (text) => void printed.push(text));
    const { ours, others } = await linuxInterface({ name: 'kpng-dry-run', exec }).open();
    t.same([...ours], []);
    const known = Object.values(networkInterfaces()).flatMap((list = []) => list);
    t.same(
      new Set(others.map(({ address }) => address)),
      new Set(known.map((each) => each.address)),
    );
    t.equal(printed.length, 3, 'a listing, the interface, and another listing');
    await linuxInterface({ name: 'lo', exec }).open();
    t.equal(printed.length, 4, 'what is there is not made');
  },
);
