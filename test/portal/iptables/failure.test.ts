import t from 'tap';
import { ExecError, type ExecFailure } from '../../../src/portal/exec.ts';
import { iptablesFailure } from '../../../src/portal/iptables/tools.ts';

const RESTORE = { file: 'iptables-nft-restore', args: ['--noflush', '-w', '5'] };

function failing(failure: ExecFailure, stderr = ''): ExecError {
  return new ExecError(failure, RESTORE, { stderr, exitCode: 1 });
}

/** What the programs of iptables 1.8.9 print, of both flavours. */
const TEXTS: readonly [string, string, 'host' | 'content', RegExp][] = [
  [
    'iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n',
    'KPNG_PORTAL_PERMISSION',
    'host',
    /^doing: iptables-nft-restore says ".*Permission denied \(you must be root\)"; give .*CAP_NET_ADMIN/,
  ],
  [
    "Fatal: can't open lock file /run/xtables.lock: Permission denied\n",
    'KPNG_PORTAL_PERMISSION',
    'host',
    /lock file/,
  ],
  [
    "Fatal: can't open lock file /run/xtables.lock: Read-only file system\n",
    'KPNG_PORTAL_FAILED',
    'host',
    /mount \/run\/xtables\.lock of the host/,
  ],
  [
    "Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.\n",
    'KPNG_PORTAL_LOCKED',
    'host',
    /another program is changing the rules/,
  ],
  [
    "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\nError occurred at line: 1\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
    'KPNG_PORTAL_UNSUPPORTED',
    'host',
    /says ".*unable to initialize table 'nat'" about "\*nat"; .*--iptables-flavor/,
  ],
  [
    "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.\n",
    'KPNG_PORTAL_UNSUPPORTED',
    'host',
    /Table does not exist/,
  ],
  [
    'iptables-nft-restore v1.8.9 (nf_tables): \nline 1: TABLE_ADD failed (Operation not supported): table nat\n',
    'KPNG_PORTAL_UNSUPPORTED',
    'host',
    /TABLE_ADD failed \(Operation not supported\)/,
  ],
  [
    "# Warning: iptables-legacy tables present, use iptables-legacy-restore to see them\niptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `conntrack':No such file or directory\n\nError occurred at line: 2\n",
    'KPNG_PORTAL_UNSUPPORTED',
    'content',
    /says "iptables-nft-restore v1\.8\.9 .*conntrack.*" about "-A KUBE-X -j RETURN"; iptables 1\.6\.2/,
  ],
  [
    'iptables-nft-restore v1.8.9 (nf_tables): \nline 2: RULE_APPEND failed (Invalid argument): rule in chain KUBE-X\n',
    'KPNG_PORTAL_FAILED',
    'content',
    /says "line 2: RULE_APPEND failed .*" about "-A KUBE-X -j RETURN"$/,
  ],
  [
    'Ignoring deprecated --wait-interval option.\niptables-restore: line 2 failed\n',
    'KPNG_PORTAL_FAILED',
    'content',
    /says "iptables-restore: line 2 failed" about "-A KUBE-X/,
  ],
  ['', 'KPNG_PORTAL_FAILED', 'content', /says ""$/],
];

t.test('says what iptables means, what about, and what to do', (t) => {
  for (const [stderr, code, blame, message] of TEXTS) {
    const stdin = '*nat\n-A KUBE-X -j RETURN\nCOMMIT\n';
    const found = iptablesFailure(failing('exit', stderr), 'doing', stdin);
    t.match(found, { blame, code, message }, stderr);
  }
  t.end();
});
