import t from 'tap';
import { answerQuery } from '../../src/cli/completion/query.ts';
import { SCRIPTS, SHELLS } from '../../src/cli/completion/scripts.ts';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { runHere } from '../support/cli.ts';

/** The candidates for a line with the cursor at its end. */
function at(line: string): string[] {
  return answerQuery(line.split(' '), REGISTRY)
    .split('\n')
    .slice(0, -1)
    .map((answer) => answer.replace(/\t.*/, ''));
}

t.test('the command prints the script of a shell, which asks the program', async (t) => {
  for (const shell of SHELLS) {
    t.match(await runHere('completion', shell), { code: 0, stdout: SCRIPTS[shell], stderr: '' });
    t.match(SCRIPTS[shell], /completion query/);
  }
  t.match(await runHere('completion', 'csh'), { code: 2, stderr: /expected one of bash, zsh/ });
  const answer = await runHere('completion', 'query', 'kube', '--drain-t');
  t.match(answer, { code: 0, stdout: /^--drain-timeout\t\w.*\n$/ });
});

t.test('words: sources and commands first, then what each may feed', async (t) => {
  t.ok(['kube', 'file', 'status', 'cleanup', 'completion'].every((word) => at('').includes(word)));
  t.same(at('ku'), ['kube']);
  t.same(at('kube to-l'), ['to-local']);
  t.ok(at('kube ').includes('to-api') && at('kube ').includes('to-userspace'));
  t.ok(at('kube to-local ').includes('to-userspace') && !at('kube to-local ').includes('to-api'));
  t.ok(at('local ').includes('to-userspace') && !at('local ').includes('to-file'));
  t.same(at('local to-json '), []);
  t.same(at('help ku'), ['kube']);
  t.same(at('completion '), ['bash', 'zsh', 'fish', 'powershell']);
  t.same(at('config '), ['validate', 'print']);
  t.same(at('cleanup '), []);
});

t.test('flags: those of the words on the line, wherever they stand', async (t) => {
  t.same(at('file to-local to-userspace --handover-s'), ['--handover-socket']);
  t.same(at('file to-local to-json --handover-s'), []);
  t.same(at('-v=4 file --inp'), ['--input']);
  t.same(at('--inp'), [], 'no source yet');
  t.ok(at('cleanup --').includes('--kube-proxy-userspace'));
  t.ok(at('kube --').includes('--help'));
});

t.test('values: choices, on and off, files, and nothing where anything may stand', async (t) => {
  t.same(at('local to-userspace --portal nf'), ['nftables']);
  t.same(at('local to-userspace --portal=ad'), ['--portal=address']);
  t.same(at('local to-userspace -portal=ad'), ['-portal=address']);
  t.same(at('local to-userspace --dry-run='), ['--dry-run=true', '--dry-run=false']);
  t.same(at('local to-userspace --dry-run '), [], 'a flag that is on or off takes no word');
  for (const line of ['file --input ', 'file -i ', 'file --input=st', 'config validate ']) {
    t.same(at(line), [':files'], line);
  }
  t.same(at('local --api '), []);
  t.same(at('local --nonsense='), []);
  t.ok(at('file --input state.yaml ').includes('to-local'), 'the value is no word');
});

t.test(
  'every flag of every command is offered, and the parser knows what is offered',
  async (t) => {
    for (const source of REGISTRY.sources) {
      for (const sink of REGISTRY.sinks) {
        const words = [source.word, sink.word];
        if (source.scope === 'local' && sink.scope === 'global') continue;
        const offered = at(`${words.join(' ')} --`);
        for (const name of Object.keys({ ...source.flags, ...sink.flags })) {
          t.ok(offered.includes(`--${name}`), `${words.join(' ')} --${name}`);
        }
        const line = `${words.join(' ')} `;
        t.same(at(line), [], line);
      }
    }
    for (const word of at('').filter((each) => each !== 'help')) {
      t.equal(parse(['help', word]).kind, 'help', word);
    }
  },
);
