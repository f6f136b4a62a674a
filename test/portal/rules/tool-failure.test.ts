import t from 'tap';
import { ExecError, type ExecFailure } from '../../../src/portal/exec.ts';
import { iptablesFailure } from '../../../src/portal/iptables/tools.ts';
import { nftFailure } from '../../../src/portal/nftables/backend.ts';
import { ToolError } from '../../../src/portal/tool-failure.ts';

const TOOLS = {
  nft: nftFailure,
  'iptables-nft-restore': iptablesFailure,
} as const;

t.test('nothing in a script is to blame when the program did not get to it', (t) => {
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

t.test('what nobody knows is told, and may be for what was to be written', (t) => {
  for (const [file, failureOf] of Object.entries(TOOLS)) {
    const error = new ExecError('exit', { file, args: [] }, { stderr: 'no idea\n', exitCode: 1 });
    const found = failureOf(error, 'x');
    t.ok(found instanceof ToolError && found.retried);
    t.match(found, { blame: 'content', message: `x: ${file} says "no idea"` });
  }
  t.end();
});
