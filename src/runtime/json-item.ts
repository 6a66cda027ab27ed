type Snake<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${Snake<Rest>}`
  : '';

/** The fields of `Row` as `/v1` and the commands name them. A field whose name ends with `At` is a time. */
type Item<Row> = {
  [Name in keyof Row & string as Snake<Name>]: Name extends `${string}At`
    ? null extends Row[Name]
      ? string | null
      : string
    : Row[Name];
};

/** The names of fields, which are few. */
const names = new Map<string, string>();

/** `row` with names such as `created_at`, and times in RFC 3339. Times of a row are milliseconds since 1970. */
export function jsonItem<Row extends object>(row: Row): Item<Row> {
  const item: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(row) as [string, unknown][]) {
    let field = names.get(name);
    if (field === undefined) names.set(name, (field = name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)));
    item[field] = name.endsWith('At') && typeof value === 'number' ? new Date(value).toISOString() : value;
  }
  return item as Item<Row>;
}
