/** The command that prints the scripts. `npm run test:deploy` tries them in real shells. */
import t from 'tap';
import { runCompletion } from '../../../src/cli/completion/command.ts';
import { SHELLS } from '../../../src/cli/completion/candidates.ts';
import { SCRIPTS } from '../../../src/cli/completion/scripts.ts';

/** What is written to one stream. */
function sink() {
  const text: string[] = [];
  return { text, write: (part: string) => text.push(part) };
}

t.test('the command prints the scripts, explains itself, and knows no other shell', async (t) => {
  for (const shell of SHELLS) {
    const [stdout, stderr] = [sink(), sink()];
    t.equal(runCompletion([shell], { stdout, stderr } as never), 0);
    t.same([stdout.text, stderr.text], [[SCRIPTS[shell]], []]);
    t.match(SCRIPTS[shell], /completion query/);
  }
  const [stdout, stderr] = [sink(), sink()];
  t.equal(runCompletion(['csh'], { stdout, stderr } as never), 2);
  t.match(stderr.text.join(''), /bash, zsh, fish, powershell \(KPNG_USAGE\)/);
  t.equal(runCompletion(['--help'], { stdout, stderr } as never), 0);
  t.match(stdout.text.join(''), /Usage:/);
});
