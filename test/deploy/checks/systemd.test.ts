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
function unitFile(folder: string, text: string): string {
  const file = join(folder, UNIT);
  writeFileSync(file, text.replace('/usr/bin/kpng-userspace', process.execPath));
  return file;
}

t.test('systemd reports no problems with the unit', { skip }, async (t) => {
  const good = await run('systemd-analyze', ['verify', '--man=no', unitFile(t.testdir(), unit)]);
  t.equal(good.code, 0, good.text);
  t.notMatch(good.text, UNIT, 'no remark about it');
  const spoiled = unit.replace('\nRestartSec=', '\nRestartSecs=');
  const bad = await run('systemd-analyze', ['verify', '--man=no', unitFile(t.testdir(), spoiled)]);
  t.match(bad.text, /RestartSecs/, 'and a misspelled setting is found');
});

t.test('not much is exposed, and the page says how much', { skip }, async (t) => {
  const security = async (text: string) =>
    run('systemd-analyze', [
      'security',
      '--offline=true',
      '--no-pager',
      `--threshold=${EXPOSURE}`,
      unitFile(t.testdir(), text),
    ]);
  const { code, text } = await security(unit);
  t.equal(code, 0, text);
  t.match(text, /exposure level/);
  const open = await security(
    unit.replaceAll(/^(Protect|Restrict|CapabilityB|SystemCallF).*\n/gm, ''),
  );
  t.not(open.code, 0, 'without its hardening it is refused');
});
