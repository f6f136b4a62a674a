import { networkInterfaces } from 'node:os';
import t from 'tap';
import {
  type Command,
  dryExec,
  ExecError,
  type ExecFailure,
  printable,
  shellText,
  systemExec,
  toolFailure,
} from '../../src/portal/exec.ts';
import { LinuxInterface } from '../../src/portal/interface/linux.ts';
import { iptablesFailure } from '../../src/portal/iptables/tools.ts';
import { NFT } from '../../src/portal/nftables/backend.ts';

/** A program that does what the script says; every system of ours has this one. */
function node(script: string, more: Partial<Command> = {}): Command {
  return { file: process.execPath, args: ['-e', script], ...more };
}

async function failureOf(command: Command): Promise<ExecError> {
  const error = await systemExec(command).catch((error_: unknown) => error_);
  if (error instanceof ExecError) return error;
  throw new Error('it did not fail as it should');
}

t.test('passes arguments without a shell, and returns what was printed, in English', async (t) => {
  const script =
    'process.stdout.write(process.argv.slice(1).join("|") + process.env.LC_ALL); process.stderr.write("err")';
  const args = ['-e', script, '$HOME', '; ls', "it's"];
  const printed = await systemExec({ file: process.execPath, args });
  t.strictSame(printed, { stdout: "$HOME|; ls|it'sC", stderr: 'err' });
});

t.test('hands over the standard input whole', async (t) => {
  const stdin = 'line\n'.repeat(200_000);
  const count = 'let n=0; process.stdin.on("data",(d)=>n+=d.length).on("end",()=>console.log(n))';
  t.equal((await systemExec(node(count, { stdin }))).stdout, '1000000\n');
  const slowly = `setTimeout(() => { ${count} }, 200)`;
  t.equal((await systemExec(node(slowly, { stdin }))).stdout, '1000000\n', 'a slow reader');
});

t.test('a program that fails says why', async (t) => {
  const script =
    'console.error("\\n  no such rule\\nmore"); console.log("half"); process.exitCode = 3';
  const error = await failureOf(node(script));
  t.match(error, { failure: 'exit', exitCode: 3, stdout: 'half\n' });
  t.match(error.message, /: no such rule$/);
  // It does not read its input, either.
  const silent = await failureOf(node('process.exit(4)', { stdin: 'x'.repeat(10_000_000) }));
  t.match(silent, { failure: 'exit', exitCode: 4, message: /: it ended with code 4$/ });
});

t.test('a program that is missing, or may not be run', async (t) => {
  const missing = await failureOf({ file: 'kpng-no-such-program', args: ['-f', '-'] });
  t.equal(missing.failure, 'missing');
  t.equal(missing.message, 'kpng-no-such-program -f -: the program is not installed');
  t.equal((await failureOf({ file: import.meta.dirname, args: [] })).failure, 'not-allowed');
});

t.test('a program that takes too long, or prints too much, is killed', async (t) => {
  const forever = 'setInterval(() => {}, 1000)';
  const slow = await failureOf(node(forever, { timeoutMs: 200 }));
  t.match(slow, { failure: 'timeout', message: /killed after 200 ms/ });
  const chatty = 'const go = () => process.stdout.write("x".repeat(65536), go); go()';
  const loud = await failureOf(node(chatty, { maxOutput: 100_000 }));
  t.match(loud, { failure: 'output', message: /more than 100000 bytes/ });
});

t.test('one that takes too long is abandoned even if its child survives', async (t) => {
  const forever = 'setInterval(() => {}, 1000)';
  const script = `const { pid } = require('child_process').spawn(process.execPath, ['-e', ${JSON.stringify(forever)}], { stdio: 'inherit' }); console.log(pid); ${forever}`;
  const error = await failureOf(node(script, { timeoutMs: 1000, stdin: 'x'.repeat(10_000_000) }));
  process.kill(Number(error.stdout));
  t.equal(error.failure, 'timeout');
});

t.test('prints commands as a shell takes them', async (t) => {
  const args = ['a b', '', "it's", '10.0.0.1/8'];
  t.equal(printable({ file: 'ip', args }), String.raw`ip 'a b' '' 'it'\''s' 10.0.0.1/8`);
  t.equal(shellText({ file: 'nft', args: ['list', 'tables'] }), 'nft list tables\n');
  t.equal(
    shellText({ file: 'nft', args: ['-f', '-'], stdin: 'a\nb' }),
    "nft -f - <<'EOF'\na\nb\nEOF\n",
  );
  t.equal(shellText({ file: 'x', args: ["it's"], stdin: '' }), `x 'it'\\''s' <<'EOF'\nEOF\n`);
});

t.test(
  'a dry run runs nothing, and knows the addresses and interfaces of the host, and those it would have made',
  async (t) => {
    const printed: string[] = [];
    const exec = dryExec(async (text) => void printed.push(text));
    t.same(await exec({ file: 'no-such-program', args: ['x'] }), { stdout: '', stderr: '' });
    t.same(printed.splice(0), ['no-such-program x\n']);
    const { ours, others } = await new LinuxInterface('kpng-dry-run', exec).open();
    t.same([...ours], []);
    const known = Object.values(networkInterfaces()).flatMap((list = []) => list);
    t.same(
      new Set(others.map(({ address }) => address)),
      new Set(known.map((each) => each.address)),
    );
    t.equal(printed.length, 3, 'a listing, the interface, and another listing');
    await new LinuxInterface('lo', exec).open();
    t.equal(printed.length, 4, 'what is there is not made');
  },
);

const TOOLS = {
  nft: (cause: unknown, doing: string) => toolFailure(cause, doing, NFT),
  'iptables-nft-restore': iptablesFailure,
} as const;

t.test('no line of a script is blamed if the program did not reach it', (t) => {
  const cases: readonly [ExecFailure, string, RegExp][] = [
    ['missing', 'KPNG_PORTAL_TOOL_MISSING', /^x: there is no \S+ on the PATH; install the package/],
    ['not-allowed', 'KPNG_PORTAL_PERMISSION', /^x: \S+ may not be run$/],
    ['timeout', 'KPNG_PORTAL_FAILED', /killed after/],
    ['output', 'KPNG_PORTAL_FAILED', /printed more than/],
    ['system', 'KPNG_PORTAL_FAILED', /could not be started/],
  ];
  for (const [file, failureOf] of Object.entries(TOOLS)) {
    for (const [failure, code, message] of cases) {
      const error = new ExecError(failure, { file, args: [] });
      t.match(failureOf(error, 'x'), { blame: 'host', code, message, cause: error }, failure);
    }
    t.match(failureOf(new Error('bug'), 'x'), { blame: 'host', message: 'x: bug' });
  }
  t.end();
});
