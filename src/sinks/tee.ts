import type { LocalSink } from '../store/local-view.ts';

/**
 * Delivers every change set to several sinks, one after the other. If one fails, the others still get it; then the
 * call rejects with the first error, and all of them get the same keys again.
 */
export function teeSinks(...sinks: readonly LocalSink[]): LocalSink {
  return {
    async sync(change) {
      const errors: unknown[] = [];
      for (const sink of sinks) {
        try {
          await sink.sync(change);
        } catch (error) {
          errors.push(error);
        }
      }
      if (errors.length > 0) throw errors[0];
    },
  };
}
