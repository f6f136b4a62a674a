/** mandoc about the man page. */
import t from 'tap';
import { REGISTRY } from '../../../src/cli/registry.ts';
import { manPage } from '../../../tools/release/man-page.ts';
import { missing, run } from '../support/toolbox.ts';

t.test('mandoc finds nothing wrong, and shows it', { skip: missing('mandoc') }, async (t) => {
  const page = manPage(REGISTRY, { version: '1.2.3', date: '2026-01-02' });
  // `-W warning`: everything from warnings on is an error; matters of style are not.
  const lint = await run('mandoc', ['-T', 'lint', '-W', 'warning'], { input: page });
  t.equal(lint.code, 0, lint.text);
  const shown = await run('mandoc', ['-T', 'ascii'], { input: page });
  // Bold letters are written twice, with a backspace between.
  t.match(shown.text.replaceAll(/.[\b]/g, ''), /--handover-socket/);
});
