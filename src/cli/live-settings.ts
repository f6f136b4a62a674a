import type { SettingChange } from '../config/events.ts';
import { fieldName } from '../config/field.ts';
import type { AdjustableLog } from '../observe/log.ts';
import { LIMIT_NAMES, LIVE_LIMITS, type LimitChange } from '../proxysocket/limits.ts';
import type { BoundCommand } from './command.ts';
import { GLOBAL_FLAGS, type GlobalOptions } from './flags/global.ts';
import type { EffectiveSetting } from './settings.ts';

/** The part of the settings that is compared. */
export type Settings = Pick<BoundCommand, 'command' | 'settings' | 'globals' | 'sink'>;

/** Applies one setting while the program runs, by flag. */
export type Appliers = Readonly<Record<string, (next: Settings) => void>>;

/** The outcome of a new configuration. */
export interface Adopted {
  readonly changed: readonly SettingChange[];
  readonly refused: readonly SettingChange[];
}

/** The settings in force. Those with an applier can be changed; the others stay. */
export class LiveSettings {
  readonly command: readonly string[];
  readonly #running: Map<string, EffectiveSetting>;
  readonly #appliers: Appliers;

  constructor({ command, settings }: Pick<Settings, 'command' | 'settings'>, appliers: Appliers) {
    this.command = command;
    this.#running = new Map(settings.map((setting) => [setting.flag, setting]));
    this.#appliers = appliers;
  }

  /** In the order of the flags. */
  get settings(): readonly EffectiveSetting[] {
    return [...this.#running.values()];
  }

  /** Applies the settings that can change now and reports those that cannot. */
  adopt(next: Settings): Adopted {
    const changed: SettingChange[] = [];
    const refused: SettingChange[] = [];
    const [from, to] = [this.command.join(' '), next.command.join(' ')];
    if (from !== to) refused.push({ flag: '', field: 'command', from, to });
    for (const setting of next.settings) {
      const running = this.#running.get(setting.flag);
      if (running === undefined) continue;
      const apply = this.#appliers[setting.flag];
      if (running.text === setting.text) {
        // The value is the same, but its origin may have changed.
        this.#running.set(setting.flag, setting);
        continue;
      }
      const change = changeOf(running, setting);
      if (apply === undefined) {
        refused.push(change);
        continue;
      }
      apply(next);
      this.#running.set(setting.flag, setting);
      changed.push(change);
    }
    return { changed, refused };
  }
}

function changeOf(running: EffectiveSetting, next: EffectiveSetting): SettingChange {
  const { flag, origin } = next;
  const field = origin.kind === 'file' ? origin.field : next.field;
  return { flag, field, from: running.text ?? '', to: next.text ?? '' };
}

/** Options that may change while the program runs: read them at each use, never keep a copy. */
export type ChangingOptions = { -readonly [Name in keyof GlobalOptions]: GlobalOptions[Name] };

/** How each live setting is applied, by the flags that are marked as live. `setLimits`: of the data path. */
export function appliers(
  globals: ChangingOptions,
  log: AdjustableLog,
  setLimits: (limits: LimitChange) => void,
): Appliers {
  const appliers: Record<string, Appliers[string]> = {};
  for (const [flag, spec] of Object.entries(GLOBAL_FLAGS)) {
    if (!('live' in spec)) continue;
    const field = fieldName(flag) as keyof GlobalOptions;
    appliers[flag] = ({ globals: next }) => {
      Object.assign(globals, { [field]: next[field] });
      if (flag === 'v') log.setVerbosity(next.v);
    };
  }
  for (const limit of LIVE_LIMITS) {
    appliers[LIMIT_NAMES[limit]] = ({ sink: { options } }) => {
      if (options.limits !== undefined) setLimits({ [limit]: options.limits[limit] });
    };
  }
  return appliers;
}
