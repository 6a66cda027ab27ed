/** Most characters of a policy that `/v1/policy/check` reads. */
const most = 8192;

/** Texts that a reader of YAML needs long for, none of which is a policy. */
export const slowTexts: Readonly<Record<string, string>> = {
  'different keys': `{${Array.from({ length: 4090 }, (_, at) => String.fromCodePoint(0x4e00 + at)).join(',')}}`,
  'closing brackets': ']'.repeat(most),
  commas: `{${','.repeat(most - 1)}`,
  'opening brackets and commas': '[,'.repeat(most / 2),
  'keys of keys': '? '.repeat(256),
};
