-- Statements of ALTER TABLE and others that change tables, block by block: each block runs in a database of its own, whose default
-- character set is utf8mb4, statement by statement. What a server refuses is left out; after each statement the tables are compared.

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t modify a tinyint
alter table t modify a tinyint unsigned
alter table t modify a int1
alter table t modify a bool
alter table t modify a boolean
alter table t modify a smallint
alter table t modify a smallint(3) zerofill
alter table t modify a int2
alter table t modify a mediumint
alter table t modify a middleint unsigned
alter table t modify a int3
alter table t modify a int
alter table t modify a int(11)
alter table t modify a integer
alter table t modify a int4 unsigned
alter table t modify a bigint
alter table t modify a bigint(20) unsigned
alter table t modify a int8
alter table t modify a decimal
alter table t modify a dec(6)
alter table t modify a numeric(12,4)
alter table t modify a fixed(5,5)
alter table t modify a decimal(65,30)
alter table t modify a decimal(38,10) unsigned
alter table t modify a float
alter table t modify a float(10)
alter table t modify a float(30)
alter table t modify a float(7,3)
alter table t modify a float4
alter table t modify a double
alter table t modify a double precision
alter table t modify a double(9,2) unsigned
alter table t modify a real
alter table t modify a float8
alter table t modify a bit
alter table t modify a bit(1)
alter table t modify a bit(9)
alter table t modify a bit(64)
alter table t modify a date
alter table t modify a time
alter table t modify a time(3)
alter table t modify a datetime
alter table t modify a datetime(6)
alter table t modify a timestamp null
alter table t modify a timestamp(2) null default null
alter table t modify a year
alter table t modify a char
alter table t modify a char(0)
alter table t modify a char(10)
alter table t modify a character(7)
alter table t modify a national char(5)
alter table t modify a nchar(4)
alter table t modify a varchar(10)
alter table t modify a varchar(255)
alter table t modify a character varying(30)
alter table t modify a char varying(8)
alter table t modify a nvarchar(6)
alter table t modify a nchar varchar(7)
alter table t modify a national varchar(9)
alter table t modify a tinytext
alter table t modify a text
alter table t modify a text(60)
alter table t modify a text(300)
alter table t modify a text(70000)
alter table t modify a mediumtext
alter table t modify a longtext
alter table t modify a long
alter table t modify a long varchar
alter table t modify a binary
alter table t modify a binary(8)
alter table t modify a varbinary(20)
alter table t modify a tinyblob
alter table t modify a blob
alter table t modify a blob(300)
alter table t modify a blob(70000)
alter table t modify a mediumblob
alter table t modify a longblob
alter table t modify a long varbinary
alter table t modify a char byte
alter table t modify a varchar(5) byte
alter table t modify a enum('x','y')
alter table t modify a enum('x','it''s','\\')
alter table t modify a set('x','y')
alter table t modify a json
alter table t modify a char(5) ascii
alter table t modify a varchar(5) unicode
alter table t modify a varchar(5) binary
alter table t modify a text charset utf8mb4
alter table t modify a varchar(9) character set koi8r
alter table t modify a char(3) charset binary
alter table t modify a varchar(9) collate utf8mb4_bin
alter table t modify a enum('é') charset utf8mb4 collate utf8mb4_bin

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t change column a a enum('é') charset utf8mb4 collate utf8mb4_bin
alter table t change column a a varchar(9) collate utf8mb4_bin
alter table t change column a a char(3) charset binary
alter table t change column a a varchar(9) character set koi8r
alter table t change column a a text charset utf8mb4
alter table t change column a a varchar(5) binary
alter table t change column a a varchar(5) unicode
alter table t change column a a char(5) ascii
alter table t change column a a json
alter table t change column a a set('x','y')
alter table t change column a a enum('x','it''s','\\')
alter table t change column a a enum('x','y')
alter table t change column a a varchar(5) byte
alter table t change column a a char byte
alter table t change column a a long varbinary
alter table t change column a a longblob
alter table t change column a a mediumblob
alter table t change column a a blob(70000)
alter table t change column a a blob(300)
alter table t change column a a blob
alter table t change column a a tinyblob
alter table t change column a a varbinary(20)
alter table t change column a a binary(8)
alter table t change column a a binary
alter table t change column a a long varchar
alter table t change column a a long
alter table t change column a a longtext
alter table t change column a a mediumtext
alter table t change column a a text(70000)
alter table t change column a a text(300)
alter table t change column a a text(60)
alter table t change column a a text
alter table t change column a a tinytext
alter table t change column a a national varchar(9)
alter table t change column a a nchar varchar(7)
alter table t change column a a nvarchar(6)
alter table t change column a a char varying(8)
alter table t change column a a character varying(30)
alter table t change column a a varchar(255)
alter table t change column a a varchar(10)
alter table t change column a a nchar(4)
alter table t change column a a national char(5)
alter table t change column a a character(7)
alter table t change column a a char(10)
alter table t change column a a char(0)
alter table t change column a a char
alter table t change column a a year
alter table t change column a a timestamp(2) null default null
alter table t change column a a timestamp null
alter table t change column a a datetime(6)
alter table t change column a a datetime
alter table t change column a a time(3)
alter table t change column a a time
alter table t change column a a date
alter table t change column a a bit(64)
alter table t change column a a bit(9)
alter table t change column a a bit(1)
alter table t change column a a bit
alter table t change column a a float8
alter table t change column a a real
alter table t change column a a double(9,2) unsigned
alter table t change column a a double precision
alter table t change column a a double
alter table t change column a a float4
alter table t change column a a float(7,3)
alter table t change column a a float(30)
alter table t change column a a float(10)
alter table t change column a a float
alter table t change column a a decimal(38,10) unsigned
alter table t change column a a decimal(65,30)
alter table t change column a a fixed(5,5)
alter table t change column a a numeric(12,4)
alter table t change column a a dec(6)
alter table t change column a a decimal
alter table t change column a a int8
alter table t change column a a bigint(20) unsigned
alter table t change column a a bigint
alter table t change column a a int4 unsigned
alter table t change column a a integer
alter table t change column a a int(11)
alter table t change column a a int
alter table t change column a a int3
alter table t change column a a middleint unsigned
alter table t change column a a mediumint
alter table t change column a a int2
alter table t change column a a smallint(3) zerofill
alter table t change column a a smallint
alter table t change column a a boolean
alter table t change column a a bool
alter table t change column a a int1
alter table t change column a a tinyint unsigned
alter table t change column a a tinyint

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t add column x0 tinyint
alter table t add column x1 tinyint unsigned
alter table t add column x2 int1
alter table t add column x3 bool
alter table t add column x4 boolean
alter table t add column x5 smallint
alter table t add column x6 smallint(3) zerofill
alter table t add column x7 int2
alter table t add column x8 mediumint
alter table t add column x9 middleint unsigned
alter table t add column x10 int3
alter table t add column x11 int
alter table t add column x12 int(11)
alter table t add column x13 integer
alter table t add column x14 int4 unsigned
alter table t add column x15 bigint
alter table t add column x16 bigint(20) unsigned
alter table t add column x17 int8
alter table t add column x18 decimal
alter table t add column x19 dec(6)
alter table t add column x20 numeric(12,4)
alter table t add column x21 fixed(5,5)
alter table t add column x22 decimal(65,30)
alter table t add column x23 decimal(38,10) unsigned
alter table t add column x24 float
alter table t add column x25 float(10)
alter table t add column x26 float(30)
alter table t add column x27 float(7,3)
alter table t add column x28 float4
alter table t add column x29 double
alter table t add column x30 double precision
alter table t add column x31 double(9,2) unsigned
alter table t add column x32 real
alter table t add column x33 float8
alter table t add column x34 bit
alter table t add column x35 bit(1)
alter table t add column x36 bit(9)
alter table t add column x37 bit(64)
alter table t add column x38 date
alter table t add column x39 time
alter table t add column x40 time(3)
alter table t add column x41 datetime
alter table t add column x42 datetime(6)
alter table t add column x43 timestamp null
alter table t add column x44 timestamp(2) null default null
alter table t add column x45 year
alter table t add column x46 char
alter table t add column x47 char(0)
alter table t add column x48 char(10)
alter table t add column x49 character(7)
alter table t add column x50 national char(5)
alter table t add column x51 nchar(4)
alter table t add column x52 varchar(10)
alter table t add column x53 varchar(255)
alter table t add column x54 character varying(30)
alter table t add column x55 char varying(8)
alter table t add column x56 nvarchar(6)
alter table t add column x57 nchar varchar(7)
alter table t add column x58 national varchar(9)
alter table t add column x59 tinytext
alter table t add column x60 text
alter table t add column x61 text(60)
alter table t add column x62 text(300)
alter table t add column x63 text(70000)
alter table t add column x64 mediumtext
alter table t add column x65 longtext
alter table t add column x66 long
alter table t add column x67 long varchar
alter table t add column x68 binary
alter table t add column x69 binary(8)
alter table t add column x70 varbinary(20)
alter table t add column x71 tinyblob
alter table t add column x72 blob
alter table t add column x73 blob(300)
alter table t add column x74 blob(70000)
alter table t add column x75 mediumblob
alter table t add column x76 longblob
alter table t add column x77 long varbinary
alter table t add column x78 char byte
alter table t add column x79 varchar(5) byte
alter table t add column x80 enum('x','y')
alter table t add column x81 enum('x','it''s','\\')
alter table t add column x82 set('x','y')
alter table t add column x83 json
alter table t add column x84 char(5) ascii
alter table t add column x85 varchar(5) unicode
alter table t add column x86 varchar(5) binary
alter table t add column x87 text charset utf8mb4
alter table t add column x88 varchar(9) character set koi8r
alter table t add column x89 char(3) charset binary
alter table t add column x90 varchar(9) collate utf8mb4_bin
alter table t add column x91 enum('é') charset utf8mb4 collate utf8mb4_bin
alter table t add column x92 geometry
alter table t add column x93 point
alter table t add column x94 linestring
alter table t add column x95 polygon
alter table t add column x96 multipoint
alter table t add column x97 multilinestring
alter table t add column x98 multipolygon
alter table t add column x99 geometrycollection
alter table t add column x100 point srid 0
alter table t add column x101 inet6
alter table t add column x102 inet4
alter table t add column x103 uuid
alter table t add column x104 vector(3)

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t add g0 geometry
alter table t drop g0
alter table t add g1 point
alter table t drop g1
alter table t add g2 linestring
alter table t drop g2
alter table t add g3 polygon
alter table t drop g3
alter table t add g4 multipoint
alter table t drop g4
alter table t add g5 multilinestring
alter table t drop g5
alter table t add g6 multipolygon
alter table t drop g6
alter table t add g7 geometrycollection
alter table t drop g7
alter table t add g8 point srid 0
alter table t drop g8
alter table t add g9 inet6
alter table t drop g9
alter table t add g10 inet4
alter table t drop g10
alter table t add g11 uuid
alter table t drop g11
alter table t add g12 vector(3)
alter table t drop g12

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t modify a int not null
alter table t modify a int null
alter table t modify a int default 5
alter table t modify a int not null default -7
alter table t modify a int default null
alter table t modify a int not null default '12'
alter table t modify a int comment 'not null default 3'
alter table t modify a int not null comment 'x' default 4
alter table t modify a int check (a > 0)
alter table t modify a int constraint positive check (a > -1)
alter table t modify a int unique
alter table t modify a int unique key
alter table t modify a int references t (id)
alter table t modify a int references t (id) on delete set null on update cascade
alter table t modify a int default (1 + 1)
alter table t modify a int invisible
alter table t modify a int visible
alter table t modify a int column_format dynamic
alter table t modify a int storage disk
alter table t modify a bigint not null first
alter table t modify a bigint after b
alter table t modify a int unsigned after id
alter table t modify a int signed
alter table t modify a int default +3
alter table t modify a int default 1.0
alter table t modify a int default 0x10
alter table t modify a int default b'101'
alter table t modify a int default true
alter table t modify a int default false
alter table t modify a int /* x */ not null
alter table t modify a int -- x\n not null

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t modify b varchar(10) default 'x'
alter table t modify b varchar(10) default ''
alter table t modify b varchar(10) default 'it''s'
alter table t modify b varchar(10) default "q"
alter table t modify b varchar(10) default 'a' 'b'
alter table t modify b varchar(10) default _latin1'x'
alter table t modify b varchar(10) not null default 'x' collate latin1_bin
alter table t modify b varchar(10) character set utf8mb4 default 'é'
alter table t modify b varchar(10) charset 'utf8mb4' collate 'utf8mb4_bin'
alter table t modify b varchar(10) collate utf8mb4_bin charset utf8mb4
alter table t modify b varchar(10) binary
alter table t modify b varchar(10) default null comment 'a, b'
alter table t modify b varchar(10) charset = utf8mb4
alter table t modify b varchar(10) default (concat('a', 'b'))
alter table t modify b varchar(10) default (uuid())

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t add (e int, f varchar(5) not null)
alter table t add column (g int default 1, h int, index (g))
alter table t add i int first
alter table t add column j int after id
alter table t add k int after j, add l int after k
alter table t add m int first, add n int first
alter table t add o int, add p int after o, add q int after id
alter table t add column if not exists o bigint
alter table t add column if not exists r bigint
alter table t add s int unique
alter table t add u int key
alter table t add v int as (a + 1)
alter table t add w int generated always as (a * 2) stored
alter table t add x int auto_increment unique
alter table t add y int default (a)
alter table t add z timestamp default current_timestamp

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t drop a
alter table t drop column b
alter table t drop column if exists b
alter table t drop column if exists c
alter table t add a int, drop d
alter table t drop a, add a bigint
alter table t add b int, add c int, add d int
alter table t drop b, drop c, add b text after id
alter table t drop id

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t rename column a to x
alter table t rename column x to a, rename column b to y
alter table t rename column a to y, rename column y to a
alter table t rename column a to `a b`
alter table t rename column `a b` to `a``b`
alter table t rename column `a``b` to A
alter table t rename column A to a
alter table t rename column id to number
alter table t rename column c to id
alter table t rename column if exists c to e
alter table t rename column d to d2, add d int
alter table t add e int, rename column d to f

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t change a x int
alter table t change x a bigint first
alter table t change a a bigint after d
alter table t change a y int, change b a varchar(10)
alter table t change y b int, change a y varchar(20) after b
alter table t change id id bigint
alter table t change id key_ bigint not null
alter table t change column if exists c c mediumtext
alter table t modify c longtext after key_, modify d decimal(10,2) first
alter table t modify d decimal(9,2) after c, modify c text first
alter table t modify column d double, drop c, add c int first
alter table t change d e int, change y d int
alter ignore table t modify e bigint
alter online table t modify e int
alter table t wait 5 modify e bigint
alter table t nowait modify e int
alter table if exists t modify e bigint
alter table t modify e int, algorithm=copy
alter table t algorithm=inplace, lock=none, add f int
alter table t lock = shared, modify f bigint, algorithm copy

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set utf8mb4
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset utf8mb4, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set latin1
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset latin1, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set utf8mb3
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset utf8mb3, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set utf8
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset utf8, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set binary
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset binary, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set ascii
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset ascii, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set koi8r
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset koi8r, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set gbk
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset gbk, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set cp1251
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset cp1251, add o char(3)

create table t (id int primary key, a varchar(20), b char(5), c tinytext, d text, e mediumtext, f longtext, g enum('x','y'), h set('x','y'), i varchar(9) charset koi8r, j blob, k json) default charset=latin1
alter table t convert to character set sjis
alter table t add l varchar(5)
alter table t modify a varchar(30)
alter table t default character set latin1
alter table t add m text
alter table t convert to charset utf8mb4 collate utf8mb4_bin
alter table t add n varchar(7)
alter table t charset sjis, add o char(3)

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
alter table t collate utf8mb4_bin
alter table t add e text
alter table t default charset = koi8r collate koi8r_bin, add f text
alter table t add g varchar(3), charset utf8mb4
alter table t modify g varchar(4), default character set latin1
alter table t convert to character set default
alter table t add h text

create table t (id int primary key, a int, b varchar(10), c text, d decimal(8,2)) default charset=latin1
create index i on t (a)
create unique index u on t (b)
drop index u on t
alter table t add index j (a desc)
alter table t add key k (a), add unique l (b(3))
alter table t rename index i to i2
alter table t rename key k to k2
alter table t drop index i2, drop key j
alter table t alter index k2 invisible
alter table t alter index k2 ignored
alter table t add fulltext f (c)
alter table t add constraint ck check (a < 100)
alter table t drop constraint ck
alter table t add constraint uq unique (d)
alter table t drop index uq
alter table t add foreign key fk (a) references t (id)
alter table t add constraint fk2 foreign key (a) references t (id) on delete cascade
alter table t drop foreign key fk2
alter table t comment = 'add column x int'
alter table t comment 'drop a, b'
alter table t auto_increment = 100
alter table t row_format = compressed
alter table t engine = innodb
alter table t engine innodb, comment ''
alter table t force
alter table t disable keys
alter table t enable keys
alter table t order by a
alter table t order by a desc, b
alter table t stats_persistent = 1
alter table t key_block_size 8
alter table t max_rows 1000 min_rows = 1 avg_row_length 10
alter table t checksum 1, delay_key_write = 1
alter table t alter a set default 5
alter table t alter column a drop default
alter table t alter b set default 'x'
alter table t alter b set default (concat('x'))
alter table t alter column if exists b drop default
analyze table t
optimize table t
check table t
repair table t
flush tables
alter table t encryption 'n'
alter table t add period int
alter table t add vector int
alter table t add `index` int
alter table t add `key` int, add `primary` int
alter table t modify `key` bigint, drop `primary`
alter table t add `check` int after `index`
alter table t add first_ int first, add after_ int after first_

create table t (id int not null, a int, b date, primary key (id, a)) partition by range (a) (partition p0 values less than (10), partition p1 values less than maxvalue)
alter table t reorganize partition p1 into (partition p1 values less than (20), partition p2 values less than maxvalue)
alter table t analyze partition p0
alter table t rebuild partition all
alter table t add c int
alter table t optimize partition p0
alter table t remove partitioning
alter table t partition by hash (a) partitions 4
alter table t coalesce partition 2
alter table t add partition partitions 2
alter table t modify c bigint
alter table t partition by key () partitions 2

create table t (id int primary key, a int)
create table u like t
alter table u add b int
create table v (like u)
alter table v drop a
rename table u to w
alter table w add c int first
rename table t to x, w to t, x to w
alter table w rename to y
alter table y rename as z, add d int
alter table z rename z2
alter table z2 rename = z3
drop table if exists v, nowhere
create table v (id int primary key)
create or replace table v (id bigint primary key, x int)
drop table z3, v
truncate table t
create table if not exists t (nothing int)
rename table if exists t to t2
rename tables t2 to t

create table t (id int primary key, a int)
/*!50100 alter table t add b int */
alter table t /*!80000 add c int */
alter table t /*M!100000 add d int */
/* x */ alter /* y */ table /* z */ t add e int # end
alter table t add f int -- end
alter table `t` add `g` int
alter table`t`add`h`int
ALTER TABLE T ADD I INT
alter	table	t	add	j	int
alter table t add k int comment 'a ''quoted'' /* text */ -- x'
alter table t add l int comment "a ""quoted"" text"
alter table t add m int comment 'a \' b'
alter table t add `n,o` int, add `p(q)` int
alter table t add r int;
set statement max_statement_time=0 for alter table t add s int
alter table .t add u int
alter table t add v enum('a,b','c)','d(') , add w int
alter table t add x set('add y int', 'drop z')
alter table t drop `n,o`, drop `p(q)`, drop v
alter table t add é int, add `日本` int
alter table t change é ü bigint
alter table t add _ int, add $a int, add 1a int

create table t (a varchar(10), b int, c int, primary key (a, b)) charset utf8mb4
alter table t modify a varchar(20)
alter table t modify b bigint first
alter table t change a name varchar(20) not null
alter table t add d int, rename column b to number
alter table t add primary key (c)
alter table t drop primary key, add primary key (name, number)
alter table t modify c int not null, add unique (c)
