/** What systemd itself says of the unit. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { missing, run } from '../support/toolbox.ts';

const UNIT = 'kpng-userspace@.service';
const unit = readFileSync(
  join(import.meta.dirname, '..', '..', '..', 'deploy', 'systemd', UNIT),
  'utf8',
);
const skip = missing('systemd-analyze');
/** The highest exposure that passes, in tenths, of 100. */
const EXPOSURE = 30;

/** A file of the unit, with a program that there is. */
function unitFile(folder: string): string {
  const file = join(folder, UNIT);
  writeFileSync(file, unit.replace('/usr/bin/kpng-userspace', process.execPath));
  return file;
}

t.test('systemd reports no problems with the unit', { skip }, async (t) => {
  const good = await run('systemd-analyze', ['verify', '--man=no', unitFile(t.testdir())]);
  t.equal(good.code, 0, good.text);
  t.notMatch(good.text, UNIT, 'no remark about it');
});

t.test('not much is exposed, and the page says how much', { skip }, async (t) => {
  const { code, text } = await run('systemd-analyze', [
    'security',
    '--offline=true',
    '--no-pager',
    `--threshold=${EXPOSURE}`,
    unitFile(t.testdir()),
  ]);
  t.equal(code, 0, text);
  t.match(text, /exposure level/);
});
