import { networkInterfaces } from 'node:os';
import t from 'tap';
import {
  type Command,
  dryExec,
  ExecError,
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

const FOREVER = 'setInterval(() => {}, 1000)';

t.test('a program that fails says why', async (t) => {
  const half =
    'console.error("\\n  no such rule\\nmore"); console.log("half"); process.exitCode = 3';
  const chatty = 'const go = () => process.stdout.write("x".repeat(65536), go); go()';
  for (const [command, failure, message, more] of [
    [node(half), 'exit', /: no such rule$/, { exitCode: 3, stdout: 'half\n' }],
    // It does not read its input.
    [node('process.exit(4)', { stdin: 'x'.repeat(10_000_000) }), 'exit', /: it ended with code 4$/],
    // On Windows, it exits with 1.
    [node('process.kill(process.pid, "SIGKILL")'), 'exit', /: it ended with (?:a signal|code 1)$/],
    [{ file: 'no-such', args: ['-f', '-'] }, 'missing', /^no-such -f -: .* is not installed$/],
    [{ file: import.meta.dirname, args: [] }, 'not-allowed', /may not be run$/],
    [node(FOREVER, { timeoutMs: 200 }), 'timeout', /killed after 200 ms/],
    [node(chatty, { maxOutput: 100_000 }), 'output', /more than 100000 bytes/],
  ] as const) {
    t.match(await failureOf(command), { failure, message, ...more });
  }
});

t.test('one that is killed is abandoned even if its child survives', async (t) => {
  const script = `const { pid } = require('child_process').spawn(process.execPath, ['-e', ${JSON.stringify(FOREVER)}], { stdio: 'inherit' }); console.log(pid, 'and more'); ${FOREVER}`;
  const error = await failureOf(node(script, { maxOutput: 8, stdin: 'x'.repeat(10_000_000) }));
  process.kill(Number.parseInt(error.stdout, 10));
  t.equal(error.failure, 'output');
});

t.test('a dry run prints commands as a shell takes them', async (t) => {
  let text = '';
  const exec = dryExec(async (printed) => void (text = printed));
  for (const [file, args, stdin, expected] of [
    ['ip', ['a b', '', "it's"], undefined, String.raw`ip 'a b' '' 'it'\''s'`],
    ['nft', ['-f', '10.0.0.1/8'], 'a\nb', "nft -f 10.0.0.1/8 <<'EOF'\na\nb\nEOF"],
    ['x', [], 'a\n', "x <<'EOF'\na\nEOF"],
    ['x', [], '', "x <<'EOF'\nEOF"],
  ] as const) {
    await exec({ file, args, ...(stdin !== undefined && { stdin }) });
    t.equal(text, `${expected}\n`);
  }
});

t.test('a dry run runs nothing, and knows the addresses and interfaces of the host', async (t) => {
  const printed: string[] = [];
  const exec = dryExec(async (text) => void printed.push(text));
  t.same(await exec({ file: 'no-such-program', args: ['x'] }), { stdout: '', stderr: '' });
  t.same(printed.splice(0), ['no-such-program x\n']);
  const { ours, others } = await new LinuxInterface('kpng-dry-run', exec).open();
  t.same([...ours], []);
  const known = Object.values(networkInterfaces()).flatMap((list = []) => list);
  t.same(new Set(others.map(({ address }) => address)), new Set(known.map((each) => each.address)));
  t.equal(printed.length, 3, 'a listing, the interface, and another listing');
  await new LinuxInterface('lo', exec).open();
  t.equal(printed.length, 4, 'what is there is not made');
});

/** What the programs print: nft 1.0.6, and iptables 1.8.9 of both flavours. Their code, what is to blame, and our message. */
const MESSAGES = String.raw`
nft | Operation not permitted (you must be root)\nnetlink: Error: cache initialization failed: Operation not permitted\n | PERMISSION host | ^doing: nft says "Operation not permitted \(you must be root\)"; give the process .*CAP_NET_ADMIN
nft | nft: Unable to initialize Netlink socket: Protocol not supported\n | UNSUPPORTED host | no nf_tables; use another --portal
nft | /dev/stdin:1:53-71: Error: Could not process rule: No such file or directory\n | FAILED content | ^doing: nft says "/dev/stdin:1:53-71: Error: Could not process rule: No such file or directory"$
nft | | FAILED content | says ""$
iptables | iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n | PERMISSION host | ^doing: iptables-nft-restore says ".*Permission denied \(you must be root\)"; give .*CAP_NET_ADMIN
iptables | Fatal: can't open lock file /run/xtables.lock: Permission denied\n | PERMISSION host | lock file
iptables | Fatal: can't open lock file /run/xtables.lock: Read-only file system\n | FAILED host | mount /run/xtables\.lock of the host
iptables | Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.\n | LOCKED host | says "Another app .*another program is changing the rules
iptables | iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\nError occurred at line: 1\nTry 'iptables-restore -h' for more information.\n | UNSUPPORTED host | says ".*unable to initialize table 'nat'" about "\*nat"; .*--iptables-flavor
iptables | iptables v1.8.9 (legacy): can't initialize iptables table 'nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.\n | UNSUPPORTED host | Table does not exist
iptables | iptables-nft-restore v1.8.9 (nf_tables): \nline 1: TABLE_ADD failed (Operation not supported): table nat\n | UNSUPPORTED host | TABLE_ADD failed \(Operation not supported\)
iptables | # Warning: iptables-legacy tables present, use iptables-legacy-restore to see them\niptables-nft-restore v1.8.9 (nf_tables): Couldn't load match 'conntrack':No such file or directory\n\nError occurred at line: 2\n | UNSUPPORTED content | says "iptables-nft-restore v1\.8\.9 .*conntrack.*" about "-A KUBE-X -j RETURN"; iptables 1\.6\.2
iptables | iptables-nft-restore v1.8.9 (nf_tables): \nline 2: RULE_APPEND failed (Invalid argument): rule in chain KUBE-X\n | FAILED content | says "line 2: RULE_APPEND failed .*" about "-A KUBE-X -j RETURN"$
iptables | Ignoring deprecated --wait-interval option.\niptables-restore: line 2 failed\n | FAILED content | says "iptables-restore: line 2 failed" about "-A KUBE-X
iptables | | FAILED content | says ""$
`;

t.test('translates messages of programs, with the subject and advice', (t) => {
  const restore = { file: 'iptables-nft-restore', args: ['--noflush', '-w', '5'] };
  for (const line of MESSAGES.trim().split('\n')) {
    const [tool = '', printed = '', result = '', pattern = ''] = line.split(/ ?\| ?/);
    const [code, blame] = result.split(' ');
    const stderr = printed.replaceAll(String.raw`\n`, '\n');
    const failed = new ExecError('exit', restore, { stderr, exitCode: 1 });
    const found =
      tool === 'nft'
        ? toolFailure(failed, 'doing', NFT)
        : iptablesFailure(failed, 'doing', '*nat\n-A KUBE-X -j RETURN\nCOMMIT\n');
    t.match(found, { blame, code: `KPNG_PORTAL_${code}`, message: new RegExp(pattern) }, line);
  }
  t.end();
});
