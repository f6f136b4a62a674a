import * as sinks from '../sinks/events.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of the small sinks. */
export const SINK_RULES: readonly LogRule[] = [
  logRule({
    channel: sinks.healthCheckServed,
    severity: 'info',
    v: 1,
    message: 'Answering on a health-check node port',
    keys: ({ service, address }) => ({ servicePortName: service, address }),
  }),
  logRule({
    channel: sinks.healthCheckFailed,
    severity: 'error',
    v: 0,
    message: 'A health-check node port is not served',
    keys: ({ service, error, retryInMs }) => ({
      servicePortName: service,
      err: error,
      ...(retryInMs !== undefined && { retryInMs: Math.round(retryInMs) }),
    }),
    limited: true,
  }),
  logRule({
    channel: sinks.calloutEnded,
    severity: 'error',
    v: 0,
    message: ({ error }) => (error === undefined ? undefined : 'The callout failed'),
    keys: ({ error, stderr, durationMs }) => ({
      err: error,
      ...(stderr !== '' && { stderr }),
      ms: Math.round(durationMs),
    }),
    limited: true,
  }),
  logRule({
    channel: sinks.calloutEnded,
    severity: 'info',
    v: 1,
    message: ({ result }) => {
      if (result === 'ok') return 'The callout has run';
      return result === 'stopped' ? 'The callout was stopped' : undefined;
    },
    keys: ({ program, stderr, durationMs }) => ({
      program,
      ...(stderr !== '' && { stderr }),
      ms: Math.round(durationMs),
    }),
  }),
  logRule({
    channel: sinks.extipProblem,
    severity: 'error',
    v: 0,
    message: 'A service port is not led anywhere from its external IPs',
    keys: ({ error }) => ({ err: error }),
    limited: true,
  }),
];
