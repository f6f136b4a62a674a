import { readFileSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import t from 'tap';
import { isAsShown, runShown, shownCommands } from '../support/console.ts';
import { shortDir } from '../support/short-dir.ts';
import { freePort } from '../support/sockets.ts';

const root = join(import.meta.dirname, '..', '..');

t.test(
  'every command of the page does what the page says',
  { skip: process.platform === 'win32' && 'the page is for a POSIX shell' },
  async (t) => {
    let page = readFileSync(join(root, 'docs/getting-started.md'), 'utf8');
    // Other tests run at the same time, and may have the ports of the page.
    for (const port of ['8080', '9001', '9002', '9003', '10249', '10256']) {
      page = page.replaceAll(port, String(await freePort()));
    }
    const serverPort = (path: string): string | undefined =>
      new RegExp(`http://127.0.0.1:(\\d+)/${path}`).exec(page)?.[1];
    const program = `node ${join(root, 'bin/kpng-userspace.js')}`;
    page = page
      .replaceAll('npm start -s --', program)
      .replace(
        '--portal address &',
        `--portal address --metrics-bind-address=127.0.0.1:${serverPort('metrics')} ` +
          `--healthz-bind-address=127.0.0.1:${serverPort('readyz')} &`,
      );
    const commands = shownCommands(page);
    t.equal(commands.length, 13);
    const env = {
      ...process.env,
      PATH: `${dirname(process.execPath)}${delimiter}${process.env['PATH']}`,
    };
    const printed = await runShown(commands, { cwd: shortDir(t), env });
    for (const [n, { command, output }] of commands.entries()) {
      t.ok(isAsShown(printed[n] ?? '', output), command, {
        printed: printed[n],
        shown: output,
      });
    }
  },
);
