import type { SettingChange } from '../config/events.ts';
import { fieldName } from '../config/field.ts';
import type { AdjustableLog } from '../observe/log.ts';
import { LIMIT_NAMES, LIVE_LIMITS, type LimitChange } from '../proxysocket/limits.ts';
import type { BoundCommand } from './command.ts';
import type { GlobalOptions } from './flags/global.ts';
import type { EffectiveSetting } from './settings.ts';

/** The part of the settings that is compared. */
export type Settings = Pick<BoundCommand, 'command' | 'settings' | 'globals' | 'sink'>;

/** Applies a live setting while the program runs. */
export type Apply = (flag: string, next: Settings) => void;

/** The outcome of a new configuration. */
export interface Adopted {
  readonly changed: readonly SettingChange[];
  readonly refused: readonly SettingChange[];
}

/** The settings in force. The live ones can be changed; the others stay. */
export class LiveSettings {
  readonly command: readonly string[];
  readonly #running: Map<string, EffectiveSetting>;
  readonly #apply: Apply;

  constructor({ command, settings }: Pick<Settings, 'command' | 'settings'>, apply: Apply) {
    this.command = command;
    this.#running = new Map(settings.map((setting) => [setting.flag, setting]));
    this.#apply = apply;
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
      if (running.text !== setting.text) {
        (setting.live ? changed : refused).push(changeOf(running, setting));
        if (!setting.live) continue;
        this.#apply(setting.flag, next);
      }
      // The origin may have changed, even if the value is the same.
      this.#running.set(setting.flag, setting);
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

/** Applies live settings to the options of all commands, to the log, and with `setLimits` to the data path. */
export function applyTo(
  globals: ChangingOptions,
  log: AdjustableLog,
  setLimits: (limits: LimitChange) => void,
): Apply {
  return (flag, { globals: next, sink: { options } }) => {
    const limit = LIVE_LIMITS.find((each) => LIMIT_NAMES[each] === flag);
    if (limit === undefined) {
      const field = fieldName(flag) as keyof GlobalOptions;
      Object.assign(globals, { [field]: next[field] });
      if (flag === 'v') log.setVerbosity(next.v);
    } else if (options.limits !== undefined) {
      setLimits({ [limit]: options.limits[limit] });
    }
  };
}
